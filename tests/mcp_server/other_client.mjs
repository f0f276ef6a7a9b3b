// A client of another implementation (npm @modelcontextprotocol/sdk, in the current folder): it submits, watches and
// approves, over `stdio COMMAND ARGUMENT…` or `http URL TOKEN`, and prints the output of the run.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const resolve = createRequire(process.cwd() + "/").resolve;
const load = (part) => import(pathToFileURL(resolve(`@modelcontextprotocol/sdk/client/${part}.js`)));
const { Client } = await load("index");
const [kind, place, ...more] = process.argv.slice(2);

async function transport() {
  if (kind === "stdio") {
    const { StdioClientTransport } = await load("stdio");
    return new StdioClientTransport({ command: place, args: more, env: process.env });
  }
  const { StreamableHTTPClientTransport } = await load("streamableHttp");
  const headers = { Authorization: `Bearer ${more[0]}` };
  return new StreamableHTTPClientTransport(new URL(place), { requestInit: { headers } });
}

const client = new Client({ name: "other", version: "1" });
await client.connect(await transport());
await client.listTools();
const ask = async (name, args, options) => {
  const answer = await client.callTool({ name, arguments: args }, undefined, options);
  if (answer.isError) throw new Error(answer.content[0].text);
  return answer.structuredContent;
};
const call = { _tool: "echo", value: "tea", _outputPath: "†state.drink" };
const document = { context: [], solution: { calls: [call], output: "†state.drink" }, config: { approve: ["echo"] } };
const { run } = await ask("submit", { document, name: "other" });
let heard = 0;
const waiting = { onprogress: () => (heard += 1), timeout: 60000 };
while ((await ask("result", { run, wait_seconds: 20 }, waiting)).held === 0);
const [held] = (await ask("held", { run })).held;
await ask("approve", { run, call: held.call, shown: held.shown });
const { output } = await ask("result", { run, wait_seconds: 50 }, waiting);
console.log(JSON.stringify({ output, heard }));
await client.close();
