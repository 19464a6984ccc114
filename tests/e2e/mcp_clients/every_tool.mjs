// Lists and calls every tool over Streamable HTTP with a bearer header, gets each prompt and reads a resource.
// node every_tool.mjs sdk|client|newest URL TOKEN CALLS PROMPTS URI: with the SDK's first generation, the client of
// its second, or that one with the newest protocol it knows.
// CALLS is [[name, arguments], …], PROMPTS the same of prompts; prints JSON.
const [kind, url, token, calls, prompts, uri] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport } =
  kind !== 'sdk'
    ? await import('@modelcontextprotocol/client')
    : {
        ...(await import('@modelcontextprotocol/sdk/client/index.js')),
        ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')),
      };
const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${token}` } },
});
const isNewest = kind === 'newest';
const options = isNewest ? { versionNegotiation: { mode: 'auto' } } : {};
const client = new Client({ name: 'every-tool', version: '1.0.0' }, options);
await client.connect(transport);
if (!isNewest) await client.ping();
const { tools } = await client.listTools();
const answers = [];
for (const [name, args] of JSON.parse(calls)) {
  const { isError, structuredContent, content } = await client.callTool({ name, arguments: args });
  answers.push({ isError, structuredContent, text: content[0].text });
}
const messages = [];
for (const [name, args] of JSON.parse(prompts)) {
  const got = await client.getPrompt({ name, arguments: args });
  messages.push(got.messages.map((message) => message.content.text));
}
console.log(
  JSON.stringify({
    protocol: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion,
    tools: tools.map((tool) => tool.name),
    answers,
    instructions: client.getInstructions(),
    prompts: (await client.listPrompts()).prompts.map((prompt) => prompt.name),
    messages,
    templates: (await client.listResourceTemplates()).resourceTemplates.map((each) => each.uriTemplate),
    resources: (await client.listResources()).resources.map((each) => each.uri),
    read: (await client.readResource({ uri })).contents[0].text,
  }),
);
await client.close();
