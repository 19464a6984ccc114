// Lists and calls every tool over Streamable HTTP with a bearer header.
// node every_tool.mjs URL TOKEN CALLS: CALLS is [[name, arguments], …]; prints {tools, answers} as JSON.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [url, token, calls] = process.argv.slice(2);
const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${token}` } },
});
const client = new Client({ name: 'every-tool', version: '1.0.0' });
await client.connect(transport);
await client.ping();
const { tools } = await client.listTools();
const answers = [];
for (const [name, args] of JSON.parse(calls)) {
  answers.push(await client.callTool({ name, arguments: args }));
}
console.log(
  JSON.stringify({ tools: tools.map((tool) => tool.name), answers, instructions: client.getInstructions() }),
);
await client.close();
