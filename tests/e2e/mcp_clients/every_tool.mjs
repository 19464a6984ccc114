// Lists and calls every tool over Streamable HTTP with a bearer header.
// node every_tool.mjs sdk|client URL TOKEN CALLS: with the SDK's first generation or the client of its second.
// CALLS is [[name, arguments], …]; prints {tools, answers} as JSON.
const [kind, url, token, calls] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport } =
  kind === 'client'
    ? await import('@modelcontextprotocol/client')
    : {
        ...(await import('@modelcontextprotocol/sdk/client/index.js')),
        ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')),
      };
const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${token}` } },
});
const client = new Client({ name: 'every-tool', version: '1.0.0' });
await client.connect(transport);
await client.ping();
const { tools } = await client.listTools();
const answers = [];
for (const [name, args] of JSON.parse(calls)) {
  const { isError, structuredContent, content } = await client.callTool({ name, arguments: args });
  answers.push({ isError, structuredContent, text: content[0].text });
}
console.log(
  JSON.stringify({ tools: tools.map((tool) => tool.name), answers, instructions: client.getInstructions() }),
);
await client.close();
