// How the page is built: hashed names, no inlined assets, and each file compressed beside itself.
//
// `npm run dev` serves the page from the sources and passes the API on to the daemon whose home is in
// DEFIB_HOME, over its socket.

import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

/** Below this, compressing gains nothing that a packet would notice. */
const SMALLEST = 512;

function compressed(): Plugin {
  let folder = "dist";
  return {
    name: "compressed",
    apply: "build",
    configResolved(config) {
      folder = join(config.root, config.build.outDir);
    },
    writeBundle() {
      for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
        const path = join(folder, name);
        if (!statSync(path).isFile() || /\.(br|gz)$/.test(path)) continue;
        const bytes = readFileSync(path);
        if (bytes.length < SMALLEST) continue;
        writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
        const quality = { [constants.BROTLI_PARAM_QUALITY]: 11 };
        writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: quality }));
      }
    },
  };
}

const home = process.env["DEFIB_HOME"];

export default defineConfig({
  plugins: [compressed()],
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 600,
  },
  server: {
    proxy: home
      ? { "/api": { target: { socketPath: join(home, "defib.sock"), host: "defib" } as never, ws: true } }
      : {},
  },
});
