// Builds the page's script and style into crates/report/assets, with the policy that lets a browser run just these.
// `--check`: builds nothing, fails where the committed files differ from a fresh build.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const assets = join(here, "../crates/report/assets");

async function bundle(entry, loader) {
    const result = await build({
        entryPoints: [join(here, entry)],
        absWorkingDir: here,
        bundle: true,
        minify: true,
        charset: "utf8",
        target: ["es2022"],
        format: "iife",
        legalComments: "none",
        write: false,
        loader,
    });
    return result.outputFiles[0].text.trimEnd();
}

const script = await bundle("src/main.ts", {});
const style = await bundle("src/style.css", {});
for (const [name, text, end] of [
    ["script", script, /<\/script|<!--/i],
    ["style", style, /<\/style/i],
]) {
    if (end.test(text)) throw new Error(`the ${name} would end its own element`);
}
const hash = (text) => `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;
const policy = ["default-src 'none'", `script-src ${hash(script)}`, `style-src ${hash(style)}`, "base-uri 'none'", "form-action 'none'"].join("; ");

const stale = [];
for (const [name, text] of [
    ["report.js", script],
    ["report.css", style],
    ["report.csp", policy],
]) {
    const path = join(assets, name);
    if (!process.argv.includes("--check")) writeFileSync(path, text);
    else if (readFileSync(path, "utf8") !== text) stale.push(name);
}
if (stale.length > 0) {
    console.error(`crates/report/assets: ${stale.join(", ")} differ from a fresh build: run \`npm run build\` in web/ and commit`);
    process.exit(1);
}
