// Connects by OAuth as an assistant does, with the official SDK; the person at the browser is played here.
// node sign_in.mjs sdk|client URL E-MAIL PASSWORD: registers, is led to the page of consent, signs in, consents,
// exchanges the code, calls a tool, renews when its token is refused, calls again; prints JSON.
const [kind, url, email, password] = process.argv.slice(2);
const { auth, Client, StreamableHTTPClientTransport } =
  kind !== 'sdk'
    ? await import('@modelcontextprotocol/client')
    : {
        ...(await import('@modelcontextprotocol/sdk/client/auth.js')),
        ...(await import('@modelcontextprotocol/sdk/client/index.js')),
        ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')),
      };
const redirectUrl = 'http://127.0.0.1:33418/callback';
const kept = { states: 0 };
const provider = {
  redirectUrl,
  clientMetadata: { client_name: 'SDK', redirect_uris: [redirectUrl], token_endpoint_auth_method: 'none' },
  state: () => `state ${(kept.states += 1)}`,
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  redirectToAuthorization: (address) => void (kept.address = address),
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  codeVerifier: () => kept.verifier,
};

// Somebody with a browser who signs in and consents; returns the fields that come back to the application.
async function consent(address) {
  const cookies = new Map();
  const go = async (path, form) => {
    const answer = await fetch(new URL(path, url), {
      method: form ? 'POST' : 'GET',
      body: form && new URLSearchParams(form),
      redirect: 'manual',
      headers: { Origin: url, Cookie: [...cookies].map((pair) => pair.join('=')).join('; ') },
    });
    for (const cookie of answer.headers.getSetCookie()) {
      const [name, value] = cookie.split(';')[0].split('=');
      cookies.set(name, value);
    }
    return answer;
  };
  const login = new URL((await go(address)).headers.get('location'), url);
  const back = login.searchParams.get('next');
  const page = await (await go((await go('/login', { email, password, next: back })).headers.get('location'))).text();
  const plain = (text) => text.replaceAll('&#34;', '"').replaceAll('&#39;', "'").replaceAll('&amp;', '&');
  const hidden = [...page.matchAll(/type="hidden" name="([^"]*)" value="([^"]*)"/g)];
  const form = Object.fromEntries(hidden.map(([, name, value]) => [name, plain(value)]));
  const project = page.match(/name="project" value="([^"]*)"/)[1];
  const led = await go('/oauth/authorize', { ...form, project, answer: 'allow' });
  return Object.fromEntries(new URL(led.headers.get('location')).searchParams);
}

async function calls() {
  const transport = new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { authProvider: provider });
  const client = new Client({ name: 'sign-in', version: '1.0.0' });
  await client.connect(transport);
  const project = await client.callTool({ name: 'get_project', arguments: {} });
  const { tools } = await client.listTools();
  await client.close();
  return [tools.length, project.isError];
}

const serverUrl = `${url}/mcp`;
const begun = await auth(provider, { serverUrl });
const { code: authorizationCode, state, iss } = await consent(kept.address);
const ended = await auth(provider, { serverUrl, authorizationCode, iss });
const first = await calls();
const granted = kept.tokens;
kept.tokens = { ...granted, access_token: 'svc_a_AAAAAAAAAAAAAAAAAAAAAA' };
const second = await calls();
console.log(
  JSON.stringify({
    steps: [begun, ended],
    state,
    scope: granted.scope,
    calls: [first, second],
    renewed: kept.tokens.refresh_token !== granted.refresh_token,
  }),
);
