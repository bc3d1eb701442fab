// Passes a TCP port on to a Unix socket, byte by byte: a browser's way to a daemon without a listener.

import { connect, createServer } from "node:net";

const [, , port, socket] = process.argv;
createServer((client) => {
  const daemon = connect(socket);
  client.pipe(daemon).pipe(client);
  client.on("error", () => daemon.destroy());
  daemon.on("error", () => client.destroy());
}).listen(Number(port), "127.0.0.1");
