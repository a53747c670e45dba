// Asks each question of standard input, a JSON list, and prints a JSON list of errors, each empty if accepted.
// {"port", "trust"}: connect to the server. {"trust", "chain", "key"}: serve with that trust, and let a client log in.
const tls = require("node:tls");
const fs = require("node:fs");

const asked = JSON.parse(fs.readFileSync(0, "utf8"));

function connect(question) {
  return new Promise((resolve) => {
    const socket = tls.connect(
      { host: "127.0.0.1", port: question.port, servername: "localhost", ca: question.trust },
      () => socket.end(() => resolve("")),
    );
    socket.on("error", (error) => resolve(String(error)));
  });
}

function serve(question) {
  return new Promise((resolve) => {
    const server = tls.createServer({
      ca: question.trust, cert: question.serverChain, key: question.serverKey,
      requestCert: true, rejectUnauthorized: false,
    }, (socket) => {
      resolve(socket.authorized ? "" : String(socket.authorizationError));
      socket.destroy();
      server.close();
    });
    server.on("tlsClientError", (error) => resolve(String(error)));
    server.listen(0, "127.0.0.1", () => {
      const client = tls.connect({
        host: "127.0.0.1", port: server.address().port, rejectUnauthorized: false,
        cert: question.chain, key: question.key,
      });
      client.on("error", () => {});
    });
  });
}

(async () => {
  const answers = [];
  for (const question of asked) answers.push(await (question.chain ? serve(question) : connect(question)));
  console.log(JSON.stringify(answers));
})();
