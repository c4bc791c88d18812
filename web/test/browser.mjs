// What the tests of the page share: the browser, the pages, and pages made from them with other data.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before as first } from "node:test";
import { pathToFileURL } from "node:url";
import { deflateSync, inflateSync } from "node:zlib";
import { chromium } from "playwright-core";

export const folder = process.env.NUMAPILOT_PAGES;
assert.ok(folder, "NUMAPILOT_PAGES names the folder with the pages");
export const figures = (name) => JSON.parse(readFileSync(join(folder, name), "utf8"));

/** Milliseconds for what an idle machine does within a second or three: a busy one may need ten times as long, or more. Playwright's own limit is 30 s. */
const PATIENCE = 120_000;

let browser;
let made;
first(async () => {
    browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"], timeout: PATIENCE });
});
after(async () => {
    await browser?.close();
    if (made) rmSync(made, { recursive: true });
});

/** Opens a page, in which `before` runs first, and holds it to the rules at its end: no console output, no error, no request but for itself, no script from data. */
export async function open(name, { fragment = "", width = 1400, height = 900, colorScheme = "light", from = folder, before } = {}) {
    const page = await browser.newPage({ viewport: { width, height }, colorScheme, reducedMotion: "reduce" });
    page.setDefaultTimeout(PATIENCE);
    if (before) await page.addInitScript(before);
    const address = pathToFileURL(join(from, name)).href;
    const complaints = [];
    page.on("console", (message) => complaints.push(`console: ${message.text()}`));
    page.on("pageerror", (error) => complaints.push(`error: ${error.stack}`));
    page.on("dialog", (dialog) => {
        complaints.push(`dialog: ${dialog.message()}`);
        void dialog.dismiss();
    });
    page.on("request", (request) => {
        if (request.url().split("#")[0] !== address) complaints.push(`request: ${request.url()}`);
    });
    await page.goto(address + fragment);
    await page.waitForSelector("html[data-ready=yes]");
    const done = async () => {
        assert.deepEqual(complaints, []);
        await page.close();
    };
    return { page, done };
}

/** Waits until what was chosen is drawn. */
export const drawn = (page) => page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
export const text = (page, selector) => page.locator(selector).first().innerText();
export const percentOf = (words) => Number(/(\d+(?:\.\d+)?)/.exec(words)[1]);
export const ones = (values) => values.reduce((sum, value) => sum + value, 0);

const DATA = /(<script id="data"[^>]*>)([^<]*)</;
const ARRAYS = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f64: Float64Array };

/** The data of a page (docs/report.md, "Format of the data"): its head, and its columns as lists, in which -1 is "not known". */
export function dataOf(name) {
    const packed = DATA.exec(readFileSync(join(folder, name), "utf8"))[2];
    const data = new Uint8Array(inflateSync(Buffer.from(packed, "base64")));
    const length = new DataView(data.buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + length)));
    const columns = {};
    for (const [column, [kind, offset, size]] of Object.entries(head.columns)) {
        const values = new ARRAYS[kind](data.buffer, 4 + length + offset, size);
        const none = kind === "f64" ? NaN : 2 ** (8 * values.BYTES_PER_ELEMENT) - 1;
        columns[column] = Array.from(values, (value) => (value === none ? -1 : value));
    }
    return { head, columns };
}

/** Opens a page whose data `change` has changed. */
export async function openChanged(name, change, options = {}) {
    made ??= mkdtempSync(join(tmpdir(), "numapilot-pages-"));
    const { head, columns } = dataOf(name);
    change(head, columns);
    const parts = [];
    let size = 0;
    for (const [column, [kind]] of Object.entries(head.columns)) {
        const values = columns[column];
        const bytes = kind === "f64" ? new Uint8Array(Float64Array.from(values).buffer) : new Uint8Array(Uint32Array.from(values).buffer);
        head.columns[column] = [kind === "f64" ? "f64" : "u32", size, values.length];
        const room = new Uint8Array(Math.ceil(bytes.length / 8) * 8);
        room.set(bytes);
        parts.push(room);
        size += room.length;
    }
    let json = Buffer.from(JSON.stringify(head));
    json = Buffer.concat([json, Buffer.alloc((12 - (json.length % 8)) % 8, " ")]);
    const length = Buffer.alloc(4);
    length.writeUInt32LE(json.length);
    const packed = deflateSync(Buffer.concat([length, json, ...parts]), { level: 1 }).toString("base64");
    const page = readFileSync(join(folder, name), "utf8").replace(DATA, (_, tag) => `${tag}${packed}<`);
    writeFileSync(join(made, name), page);
    return open(name, { ...options, from: made });
}
