// How a page behaves in headless Chromium: prints, for each page given, its size, the time to the first picture and to filter, in milliseconds.
// Usage: CHROMIUM=path node bench.mjs NAME=page.html ...
import { statSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

/** What readers do, each by itself; every one draws all views anew. */
const CHOICES = [
    ["time", (page) => drag(page, 0.2, 0.5)],
    ["object", (page) => page.locator(".objects tbody tr.choosable").first().click()],
    ["thread", (page) => page.locator(".threads tbody tr.choosable").nth(1).click()],
    ["node", (page) => page.locator(".matrix-table th[scope=row] button").first().click()],
    ["function", (page) => page.locator(".functions tbody tr.choosable").first().click()],
];

async function drag(page, from, to) {
    await page.locator(".stage").scrollIntoViewIfNeeded();
    const box = await page.locator(".stage").boundingBox();
    await page.mouse.move(box.x + box.width * from, box.y + 30);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * to, box.y + 30, { steps: 2 });
    await page.mouse.up();
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
console.log(["page", "MB", "first picture", ...CHOICES.map(([name]) => name)].join("\t"));
for (const argument of process.argv.slice(2)) {
    const [name, path] = argument.split("=");
    const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
    await page.goto(pathToFileURL(path).href);
    await page.waitForSelector("html[data-ready=yes]", { timeout: 60_000 });
    const first = await page.evaluate(() => performance.getEntriesByName("first-picture")[0].startTime);
    const times = [];
    for (const [, choose] of CHOICES) {
        await page.evaluate(() => performance.clearMeasures("filter"));
        await choose(page);
        await page.waitForFunction(() => performance.getEntriesByName("filter").length > 0);
        times.push(await page.evaluate(() => Math.max(...performance.getEntriesByName("filter").map((entry) => entry.duration))));
        await page.getByRole("button", { name: "Clear all" }).click();
        await page.locator(".chip").first().waitFor({ state: "detached" });
    }
    console.log([name, (statSync(path).size / 1e6).toFixed(2), first.toFixed(0), ...times.map((time) => time.toFixed(0))].join("\t"));
    await page.close();
}
await browser.close();
