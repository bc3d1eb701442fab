// How the page's parts are tested on their own: without a browser.

import { defineConfig } from "vitest/config";

export default defineConfig({ test: { include: ["test/**/*.test.ts"] } });
