// Drives the pages that `numapilot report --html` wrote, in a real browser: every view, every way to choose, no error, no request.
//
// NUMAPILOT_PAGES names a folder with the pages and, beside `NAME.html`, the figures of `numapilot report --json` in `NAME*.json`. The Rust test
// crates/cli/tests/html.rs makes it and starts this. CHROMIUM is the browser's path.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import { dataOf, drawn, figures, folder, ones, open, openChanged, percentOf, text } from "./browser.mjs";

/** Whether a canvas shows more than one colour. */
const isPainted = (page, selector) =>
    page
        .locator(selector)
        .first()
        .evaluate((canvas) => {
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const colours = new Set();
            for (let i = 0; i < data.length && colours.size < 3; i += 4)
                if (data[i + 3] > 0) colours.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
            return colours.size > 1;
        });

/** A share in a narrow column. */
const bare = (share) => {
    if (share >= 0.995 && share < 1 - 1e-9) return ">99";
    return share <= 0 ? "·" : share < 0.005 ? "<1" : (share * 100).toFixed(0);
};

test("the first screen says what ran, the three figures, the object, and draws the machine", async () => {
    const { page, done } = await open("streamcluster.html");
    const report = figures("streamcluster.json");
    const totals = report.headline.totals;
    assert.match(await text(page, ".masthead"), /streamcluster/);
    assert.match(await text(page, ".masthead"), /opteron-8385/);
    assert.match(await text(page, ".masthead"), /simulated machine/);
    const values = await page.locator(".figure-value").allInnerTexts();
    assert.equal(percentOf(values[0]), Number((totals.remote_share.value * 100).toFixed(1)));
    assert.equal(percentOf(values[1]), Number((totals.imbalance.population.value * 100).toFixed(0)));
    assert.equal(percentOf(values[2]), Number((report.headline.top.share.value * 100).toFixed(1)));
    assert.match(values[0], /±/, "a sampled figure has its interval");
    assert.match(await text(page, ".findings li"), /^block \(streamcluster\.cpp:\d+/);
    // All of it above the fold.
    for (const part of [".verdict", ".figures", ".findings li", ".topology-picture"]) {
        const box = await page.locator(part).first().boundingBox();
        assert.ok(box && box.y + box.height <= 900, `${part} ends at ${box?.y + box?.height}`);
    }
    const links = report.links;
    assert.equal(await page.locator(".wire").count(), links.length);
    const labels = await page.locator(".wire-label").evaluateAll((texts) => texts.map((text) => text.lastChild.textContent));
    const shown = labels.map((words) => percentOf(words));
    const all = ones(report.matrix.accesses.flat().map((estimate) => estimate.value));
    const busiest = Math.max(...links.map((link) => link.accesses));
    assert.ok(Math.abs(Math.max(...shown) - (busiest / all) * 100) < 0.6, `${shown} against ${busiest / all}`);
    await done();
});

test("what is not all does not read as all, nor something as nothing", async () => {
    const exact = (value) => [value, value, value];
    const change = (head) => {
        // Of 10,007 accesses: 9,960 local ones to node 0, nearly all of the others to it too.
        head.matrix.accesses = head.matrix.accesses.map((row) => row.map(() => exact(0)));
        head.matrix.accesses[0][0] = exact(9960);
        head.matrix.accesses[1][0] = exact(39.6);
        head.matrix.accesses[2][1] = exact(0.4);
        head.matrix.accesses[3][2] = exact(7);
        head.headline.top.share = exact(0.9996);
        head.sites[0].share = exact(0.9996);
        head.sites[0].remote = exact(0.996);
    };
    const { page, done } = await openChanged("streamcluster.html", change);
    assert.deepEqual((await page.locator(".matrix-table .sums .sum").allInnerTexts()).slice(0, 4), [">99 %", "<0.1 %", "0.1 %", "0.0 %"]);
    const cells = page.locator(".matrix-table .cell");
    assert.equal(await cells.first().innerText(), ">99 %");
    assert.match(await cells.nth(9).getAttribute("title"), /, <0\.1 % of /);
    assert.equal((await page.locator(".figure-value").nth(2).innerText()).replace(/\s/g, ""), ">99.9%");
    const row = await page.locator(".objects tbody tr.choosable").first().locator("td .over").allInnerTexts();
    assert.ok(row.includes(">99.9") && row.includes(">99"), row.join());
    await done();
});

test("every view is drawn", async () => {
    const { page, done } = await open("streamcluster.html");
    assert.ok(await isPainted(page, "canvas.timeline"));
    assert.ok((await page.locator(".objects tbody tr").count()) >= 2);
    assert.ok((await page.locator(".flame .block").count()) >= 3);
    assert.ok((await page.locator(".functions tbody tr").count()) >= 2);
    assert.equal(await page.locator(".threads tbody tr").count(), 16);
    assert.ok(await isPainted(page, ".threads canvas.spark"));
    assert.equal(await page.locator(".matrix-table .cell").count(), 16);
    assert.match(await text(page, ".latency"), /instrument observes accesses.*no latency was measured/s);
    assert.equal(await page.locator(".chart").count(), 4);
    for (const path of await page.locator(".chart .line").all()) assert.match(await path.getAttribute("d"), /^M/);
    assert.match(await text(page, ".about"), /every sample/);
    await done();
});

test("heights have an axis: round values from 0, in the measure of the bars, and what they count", async () => {
    const value = (label) => Number.parseFloat(label) * ({ k: 1e3, M: 1e6, G: 1e9 }[label.at(-1)] ?? 1);
    const greatest = (slots, weights) => {
        const sums = new Map();
        slots.forEach((slot, row) => sums.set(slot, (sums.get(slot) ?? 0) + weights[row]));
        return Math.max(...sums.values());
    };
    const { columns: big } = dataOf("big.html");
    const { columns: timed } = dataOf("latency-cells.html");
    for (const [name, card, most, unit] of [
        ["big.html", ".time", greatest(big.row_bin, big.row_weight), /^height: accesses in a slice of [\d.]+ (ns|µs|ms|s)$/],
        ["latency-cells.html", ".latency", greatest(timed.latency_bucket, timed.latency_weight), /^height: accesses in a quarter of a doubling$/],
    ]) {
        const { page, done } = await open(name);
        assert.match(await text(page, `${card} .unit`), unit);
        const ticks = await page.locator(`${card} .tick`).evaluateAll((texts) => texts.map((text) => [text.textContent, Number(text.getAttribute("y"))]));
        const [values, places] = [ticks.map(([label]) => value(label)), ticks.map(([, y]) => y)];
        const said = `${ticks.join(" ")} of ${most}`;
        const [, step] = values;
        assert.ok(values[0] === 0 && [1, 2, 5].includes(Number(step.toExponential().split("e")[0])), said);
        assert.ok(values.at(-1) <= most * 1.001 && values.at(-1) + step > most, said);
        // What the highest bar has of the height: that of the bars themselves in one of them, in both what leaves no tick outside.
        const tall = ((places[0] - places[1]) / step) * most;
        values.forEach((value, tick) => assert.ok(Math.abs(places[0] - places[tick] - (value / most) * tall) < 0.5, said));
        const bars = await page.locator(`${card} rect`).evaluateAll((rects) => rects.map((rect) => ["x", "height"].map((name) => rect.getAttribute(name))));
        if (bars.length > 0) assert.ok(Math.abs(greatest(bars.map(([x]) => x), bars.map(([, height]) => Number(height))) - tall) < 0.5, said);
        assert.ok(tall > 60 && places[0] - tall > 0, said);
        await done();
    }
});

test("an object's threads, pages and stacks are shown when it is chosen, and everything else is filtered by it", async () => {
    const { page, done } = await open("streamcluster.html");
    const before = await page.locator(".figure-value").allInnerTexts();
    await page.locator(".objects tbody tr", { hasText: "points.p" }).click();
    await drawn(page);
    assert.match(page.url(), /#site=S\d+$/);
    assert.ok(await isPainted(page, "#object-detail canvas.strips"));
    assert.ok(await isPainted(page, "#object-detail canvas.pages >> nth=0"));
    assert.ok(await isPainted(page, "#object-detail canvas.pages >> nth=1"));
    assert.ok((await page.locator("#object-detail .stack").count()) >= 1);
    assert.match(await text(page, "#object-detail .frames"), /streamcluster\.cpp:\d+/);
    assert.notDeepEqual(await page.locator(".figure-value").allInnerTexts(), before);
    assert.match(await text(page, ".chip"), /object points\.p/);
    assert.match(await text(page, ".passing"), /estimated from/);
    assert.equal((await page.locator(".objects tbody tr").count()) >= 2, true, "other objects stay to be chosen");
    await page.locator(".chip").click();
    await drawn(page);
    assert.deepEqual(await page.locator(".figure-value").allInnerTexts(), before);
    assert.equal(await page.locator("#object-detail").isVisible(), false);
    await done();
});

test("time, nodes, threads, functions and directions filter; each has a chip and a place in the link", async () => {
    const { page, done } = await open("streamcluster.html");
    const passing = async () => percentOf(await text(page, ".passing"));
    const choose = async (what, action, fragment, isPart = true) => {
        await action();
        await drawn(page);
        assert.match(page.url(), fragment, what);
        const share = await passing();
        assert.ok(share > 0 && (share < 100 || !isPart), `${what}: ${share} %`);
        await page.getByRole("button", { name: "Clear all" }).click();
        await drawn(page);
        assert.equal(await page.locator(".chip").count(), 0);
    };
    // The findings above it may have pushed it below the window.
    await page.locator(".stage").scrollIntoViewIfNeeded();
    const stage = await page.locator(".stage").boundingBox();
    await choose(
        "time by dragging",
        async () => {
            await page.mouse.move(stage.x + stage.width * 0.2, stage.y + 40);
            await page.mouse.down();
            await page.mouse.move(stage.x + stage.width * 0.4, stage.y + 40, { steps: 4 });
            assert.ok(await page.locator(".tip").isVisible());
            await page.mouse.up();
        },
        /time=\d+-\d+/,
    );
    await choose(
        "time by keyboard",
        async () => {
            await page.locator(".stage").focus();
            await page.keyboard.press("Shift+ArrowRight");
            await page.keyboard.press("Shift+ArrowRight");
            await page.keyboard.press("ArrowRight");
        },
        /time=\d+-\d+/,
    );
    await choose("a node's CPUs", () => page.getByRole("button", { name: /^CPUs of node 1 / }).click(), /from=1/);
    await choose(
        "a node's CPUs by keyboard",
        async () => {
            await page.getByRole("button", { name: /^CPUs of node 2 / }).focus();
            await page.keyboard.press("Enter");
        },
        /from=2/,
    );
    // Nearly everything lies on node 0.
    await choose("a node's memory", () => page.getByRole("button", { name: /^Memory of node 0 / }).click(), /home=0/, false);
    await choose("a cell of the matrix", () => page.locator(".matrix-table .cell").nth(4).click(), /from=1&home=0/);
    await choose("a thread", () => page.locator(".threads tbody tr").nth(3).click(), /thread=\d+/);
    await choose("a function", () => page.locator(".functions tbody tr").first().click(), /function=\d+/);
    await choose("remote accesses", () => page.locator(".filters select").selectOption("remote"), /only=remote/);
    await choose("writes", () => page.locator(".filters select").selectOption("writes"), /only=writes/);
    await choose(
        "a function of the flame graph",
        async () => {
            await page.locator(".flame .block[data-depth='2']").first().click();
            await page.getByRole("button", { name: "Filter by this function" }).click();
        },
        /function=\d+/,
    );
    await done();
});

test("a thread shows its event flow, and a thread and an object together what it does there", async () => {
    const { page, done } = await open("streamcluster.html", { fragment: "#thread=5" });
    await page.locator(".flow summary").click();
    assert.ok((await page.locator(".flow tbody tr").count()) >= 50);
    const times = await page.locator(".flow tbody tr td:first-child").allInnerTexts();
    assert.ok(times.length > 0 && times.every((time) => / (ns|µs|ms|s)$/.test(time)), times.slice(0, 3).join());
    await page.locator(".flow tbody button", { hasText: "block" }).first().click();
    await drawn(page);
    assert.match(page.url(), /thread=5&site=S\d+/);
    assert.equal(await page.locator(".chip").count(), 2);
    await done();
});

test("what the page works out under a filter is what the report says of it", async () => {
    const report = figures("streamcluster.part.json");
    const { start, end } = figures("streamcluster.range.json");
    const { page, done } = await open("streamcluster.html", { fragment: `#time=${start}-${end}&from=1` });
    const values = await page.locator(".figure-value").allInnerTexts();
    const says = await page.locator(".figure-says").allInnerTexts();
    const remote = report.headline.totals.remote_share;
    const half = ((remote.high - remote.low) / 2) * 100;
    const words = (value) => value.toFixed(half < 9.95 ? 1 : 0);
    assert.equal(values[0].replace(/\s/g, ""), `${words(remote.value * 100)}±${words(half < 9.95 ? Math.max(half, 0.1) : Math.ceil(half))}%`);
    assert.match(says[0], new RegExp(`from ${report.headline.totals.samples} samples`));
    const imbalance = report.headline.totals.imbalance.population;
    assert.equal(percentOf(values[1]), Number((imbalance.value * 100).toFixed(0)));
    for (const site of report.sites.filter((row) => row.key !== "unknown").slice(0, 3)) {
        const row = page.locator(`.objects tbody tr`, { hasText: site.place }).filter({ hasText: site.name }).first();
        const cells = await row.locator("td").allInnerTexts();
        assert.match(cells[1].replace(/\s/g, ""), new RegExp(`^${(site.share.value * 100).toFixed(1)}`), `${site.name}: ${cells}`);
        const own = ((site.share.high - site.share.low) / 2) * 100;
        if (own > 0) assert.match(cells[1].replace(/\s/g, ""), new RegExp(`±${Math.max(own, 0.1).toFixed(1)}$`), site.name);
        assert.equal(
            cells[3],
            bare(site.remote.value),
            `${site.name}: ${cells}`,
        );
        assert.equal(cells[11], String(site.threads), `${site.name}: ${cells}`);
        const bar = await row.locator(".node-bar").first().getAttribute("aria-label");
        assert.match(bar, /^node 1 100\.0 %$/, "all of it is from the chosen node");
    }
    await done();
});

test("tables sort and search, and the link remembers both", async () => {
    const { page, done } = await open("streamcluster.html");
    // Stacks of threads reserve more than the largest block has, and are listed where a sample happened to meet one.
    const first = async () => (await page.locator(".objects tbody tr .name").allInnerTexts()).filter((name) => !name.startsWith("stack"))[0];
    await page.locator(".objects button.sort", { hasText: "Peak size" }).click();
    await drawn(page);
    assert.equal(await first(), "block");
    await page.locator(".objects button.sort", { hasText: "Peak size" }).click();
    await drawn(page);
    assert.notEqual(await first(), "block");
    await page.keyboard.press("/");
    await page.keyboard.type("points");
    await drawn(page);
    assert.match(await text(page, ".objects tbody tr"), /points/);
    assert.equal(await page.locator(".objects tbody tr", { hasText: "block" }).count(), 0);
    assert.match(page.url(), /objects\.sort=bytes%7Eup/);
    assert.match(page.url(), /objects\.find=points/);
    const link = page.url().slice(page.url().indexOf("#"));
    await done();
    const again = await open("streamcluster.html", { fragment: link });
    assert.match(await text(again.page, ".objects tbody tr"), /points/);
    assert.equal(await again.page.locator(".objects tbody tr", { hasText: "block" }).count(), 0);
    assert.equal(await again.page.locator(".objects input").inputValue(), "points");
    await again.done();
});

test("objects are listed one by one, and each can be chosen", async () => {
    const { page, done } = await open("streamcluster.html");
    await page.locator(".objects select").selectOption("instance");
    await drawn(page);
    await page.locator(".objects tbody tr", { hasText: "block" }).click();
    await drawn(page);
    assert.match(page.url(), /object=\d+/);
    assert.match(await text(page, "#object-detail .where-born"), /64\.0 MiB|32\.0 MiB/);
    assert.match(await text(page, "#object-detail .where-born"), /allocated at/);
    await done();
});

test("the flame graph zooms, and turns to allocation sites", async () => {
    const { page, done } = await open("streamcluster.html");
    await page.locator(".flame .block[data-depth='1']").first().click();
    assert.ok(await page.getByRole("button", { name: "Zoom out" }).isVisible());
    await page.getByRole("button", { name: "Zoom out" }).click();
    await page.locator(".flame-card select[aria-label='Whose call stacks']").selectOption("birth");
    await drawn(page);
    assert.ok((await page.locator(".flame .block", { hasText: "block" }).count()) >= 1);
    await page.locator(".flame-card select[aria-label='Which accesses']").selectOption("all");
    await drawn(page);
    assert.match(await text(page, ".flame .block"), /all accesses/);
    await done();
});

test("every figure has its definition one click away", async () => {
    const { page, done } = await open("streamcluster.html", { fragment: "#site=S0" });
    await page.locator(".objects tbody tr").first().click();
    await drawn(page);
    const terms = await page.locator("button.define").evaluateAll((buttons) => [...new Set(buttons.map((button) => button.dataset.term))]);
    assert.ok(terms.length >= 20, terms.join());
    await page.locator("button.define").first().click();
    assert.equal(await page.locator("dialog[open] .looked-up").count(), 1);
    await page.keyboard.press("Escape");
    // The rest in the page itself: a round trip for each would take its time.
    const undefinedTerms = await page.evaluate((all) => {
        const dialog = document.querySelector("dialog.definitions");
        return all.filter((term) => {
            document.querySelector(`button.define[data-term="${term}"]`).click();
            const isDefined = dialog.open && dialog.querySelectorAll(".looked-up").length === 1;
            dialog.close();
            return !isDefined;
        });
    }, terms);
    assert.deepEqual(undefinedTerms, []);
    assert.equal(await page.locator("dialog[open]").count(), 0);
    await done();
});

test("keys work: theme, definitions, escape lifts the last filter", async () => {
    const { page, done } = await open("streamcluster.html", { fragment: "#thread=2&only=remote" });
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await background();
    await page.keyboard.press("t");
    assert.notEqual(await background(), light);
    await page.keyboard.press("?");
    assert.ok((await page.locator("dialog[open]").count()) === 1);
    await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
    await drawn(page);
    assert.match(page.url(), /#thread=2$/);
    await done();
});

test("escape in the time lifts its range, and leaves the other filters", async () => {
    const { page, done } = await open("streamcluster.html", { fragment: "#thread=2&only=remote" });
    await page.locator(".stage").focus();
    await page.keyboard.press("Shift+ArrowRight");
    await drawn(page);
    assert.match(page.url(), /time=\d+-\d+/);
    await page.keyboard.press("Escape");
    await drawn(page);
    assert.match(page.url(), /#thread=2&only=remote$/);
    await done();
});

test("what was chosen by keyboard keeps the focus, though it is drawn anew", async () => {
    const { page, done } = await open("streamcluster.html");
    const label = () => page.evaluate(() => document.activeElement.getAttribute("aria-label") ?? document.activeElement.tagName);
    const matrix = page.locator(".matrix-table");
    const chosen = [page.getByRole("button", { name: /^CPUs of node 1 / }), matrix.locator(".cell").nth(5), matrix.locator("thead button").nth(2)];
    for (const [index, button] of chosen.entries()) {
        await button.focus();
        const before = await label();
        await page.keyboard.press("Enter");
        await drawn(page);
        // Its figures may have changed.
        assert.equal((await label()).split(/ make |:/)[0], before.split(/ make |:/)[0], `${index}`);
        await page.keyboard.press("Enter");
        await drawn(page);
    }
    await page.locator(".functions .table-foot button").first().focus();
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.closest(".functions") !== null), true, "more rows were shown");
    await done();
});

test("a flame graph is one stop for the tab key, and arrow keys lead through it", async () => {
    const { page, done } = await open("streamcluster.html");
    assert.equal(await page.locator(".flame .block[tabindex='0']").count(), 1);
    const focused = () => page.evaluate(() => [...document.querySelectorAll(".flame .block")].indexOf(document.activeElement));
    await page.locator(".flame .block").first().focus();
    for (const [key, place] of [["ArrowDown", 1], ["ArrowRight", 2], ["ArrowUp", 1]]) {
        await page.keyboard.press(key);
        assert.equal(await focused(), place, key);
        assert.equal(await page.locator(".flame .block[tabindex='0']").count(), 1);
    }
    await page.keyboard.press("Enter");
    assert.ok(await page.getByRole("button", { name: "Zoom out" }).isVisible());
    assert.equal(await focused(), 0, "the block that fills it now");
    await done();
});

test("a matrix of many nodes says what its strongest colour is, is one stop for the tab key, and arrow keys lead through it", async () => {
    const { page, done } = await open("nodes-64.html");
    const { head } = dataOf("nodes-64.html");
    const values = head.matrix.accesses.flat().map((estimate) => estimate[0]);
    const share = ((Math.max(...values) / ones(values)) * 100).toFixed(1);
    assert.match(await text(page, ".matrix"), new RegExp(`The strongest colour is ${share.replace(".", "\\.")} % of the accesses`));
    assert.equal(await page.locator(".matrix-table .cell[tabindex='0']").count(), 1);
    const focused = () => page.evaluate(() => [...document.querySelectorAll(".matrix-table .cell")].indexOf(document.activeElement));
    await page.locator(".matrix-table .cell").first().focus();
    for (const [key, place] of [["ArrowUp", 0], ["ArrowRight", 1], ["ArrowDown", 65], ["ArrowLeft", 64], ["ArrowLeft", 64]]) {
        await page.keyboard.press(key);
        assert.equal(await focused(), place, key);
    }
    assert.equal(await page.locator(".matrix-table .cell[tabindex='0']").count(), 1);
    await done();
});

test("of more threads than can be drawn, those that access an object most are", async () => {
    const { head, columns } = dataOf("threads-1024.html");
    const sites = new Map();
    columns.row_object.forEach((key, row) => {
        const site = columns.key_site[key];
        if (site < 0) return;
        if (!sites.has(site)) sites.set(site, new Map());
        const sums = sites.get(site);
        sums.set(columns.row_thread[row], (sums.get(columns.row_thread[row]) ?? 0) + columns.row_weight[row]);
    });
    const [site, sums] = [...sites].sort((a, b) => b[1].size - a[1].size)[0];
    assert.ok(sums.size > 128, `${sums.size} of ${head.threads.length} threads`);
    const drawnOnes = [...sums].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 128).map(([thread]) => thread).sort((a, b) => a - b);
    const { page, done } = await open("threads-1024.html", { fragment: `#site=S${columns.site_id[site]}` });
    assert.match(await text(page, "#object-detail .strips-box"), /The 128 threads with most accesses of [\d.]+( k)? are drawn/);
    const canvas = page.locator("#object-detail canvas.strips");
    const at = (y) =>
        canvas.evaluate((canvas, y) => {
            const box = canvas.getBoundingClientRect();
            canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + box.width / 2, clientY: box.top + box.height * y }));
            return canvas.title;
        }, y);
    for (const place of [0, 40, 127]) {
        assert.match(await at((place + 0.5) / 128), new RegExp(`^${drawnOnes[place]} `), `${place}`);
    }
    await done();
});

test("metrics over time say what the top of each picture stands for", async () => {
    const { page, done } = await open("streamcluster.html");
    const scales = await page.locator(".chart .scale").allInnerTexts();
    assert.equal(scales.length, 8);
    assert.match(scales[0], /^[\d.]+ [kMG]\/s$/);
    assert.deepEqual(scales.slice(2, 6), ["100.0 %", "0", "100.0 %", "0"]);
    // All of four nodes on one.
    assert.equal(scales[6], "173.2 %");
    await done();
});

test("paper gets the colours of a light page, and the screen its own again", async () => {
    const { page, done } = await open("streamcluster.html", { colorScheme: "dark" });
    const colours = () =>
        page.evaluate(() => ["body", ".matrix-table .cell:not(.local *)"].map((part) => getComputedStyle(document.querySelector(part)).backgroundColor));
    const dark = await colours();
    const on = (name) => page.evaluate((name) => window.dispatchEvent(new Event(name)), name);
    await on("beforeprint");
    const light = await colours();
    for (const colour of light) assert.ok(Number(/\d+/.exec(colour)[0]) > 200, `${colour} on paper`);
    await on("afterprint");
    assert.deepEqual(await colours(), dark);
    await done();
});

test("names that would turn the text beside them around are shown with escapes", async () => {
    const evil = (text) => (text ? `${text}\u202e\u0007\u2066` : text);
    const change = (head) => {
        head.strings = head.strings.map(evil);
        for (const row of [...head.sites, ...head.functions, ...head.threads, head.headline.top])
            for (const field of ["name", "function", "place"]) row[field] = evil(row[field]);
        head.recording.command = head.recording.command.map(evil);
        head.marks = [[head.start_ns, evil("begin")]];
        head.findings.forEach((finding) => (finding.says = finding.says.map(([text, isStrong]) => [evil(text), isStrong])));
    };
    const { page, done } = await openChanged("streamcluster.html", change);
    await page.locator(".objects tbody tr.choosable").first().click();
    await drawn(page);
    const [shown, left] = await page.evaluate(() => {
        const attributes = ["title", "aria-label"].flatMap((name) => [...document.querySelectorAll(`[${name}]`)].map((part) => part.getAttribute(name)));
        const all = [document.body.textContent, ...attributes].join("");
        return [all.includes("\\u{202e}\\u{7}\\u{2066}"), /[\u0007\u202e\u2066]/.test(all)];
    });
    assert.ok(shown, "they are shown");
    assert.equal(left, false);
    await done();
});

test("without latencies among what passes, no median is said; of nodes that serve as much, the report's is named", async () => {
    const change = (head, columns) => {
        columns.row_latency = columns.row_thread.map(() => -1);
        const { totals } = head.headline;
        const each = totals.accesses[0] / totals.served.length;
        totals.served = totals.served.map(() => [each, each, each]);
    };
    const { page, done } = await openChanged("streamcluster.html", change);
    const words = await text(page, ".latency");
    assert.match(words, /No access has a latency\./);
    assert.doesNotMatch(words, /median|none/i);
    const last = dataOf("streamcluster.html").head.nodes.at(-1);
    assert.match(await page.locator(".figure-says").nth(1).innerText(), new RegExp(`^node ${last} serves `));
    await done();
});

test("pictures have tables behind them", async () => {
    const { page, done } = await open("streamcluster.html", { fragment: "#site=S0" });
    await page.locator(".objects tbody tr").first().click();
    await drawn(page);
    const pictures = page.locator("details.behind");
    assert.ok((await pictures.count()) >= 6);
    for (const picture of await pictures.all()) {
        await picture.locator("summary").click();
        // Rows are made when the browser tells that the table was opened. One that stays empty ends this wait with an error that names it.
        await picture.locator("tbody tr").first().waitFor({ state: "attached" });
    }
    await done();
});

test("narrow and dark screens scroll only down, and paper gets everything", async () => {
    for (const colorScheme of ["light", "dark"]) {
        const { page, done } = await open("streamcluster.html", { width: 500, colorScheme });
        await page.locator(".objects tbody tr").first().click();
        await drawn(page);
        const [wide, room] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
        assert.ok(wide <= room, `${colorScheme}: ${wide} pixels on ${room}`);
        await page.emulateMedia({ media: "print" });
        assert.equal(await page.locator(".filterbar nav").isVisible(), false);
        assert.ok(await page.locator(".about").isVisible());
        await done();
    }
});

test("latencies and pages of a range shorter than their slices are those of the slices around it", async () => {
    const { program_time_ns: all } = figures("latency-cells.json").recording;
    // Slices are a sixtieth of the time: none begins within this range.
    const time = `${Math.round(all * 0.51)}-${Math.round(all * 0.513)}`;
    const { page, done } = await open("latency-cells.html", { fragment: "#objects.by=instance" });
    // Those with most accesses of the whole time: they have page maps, and some of them live then.
    const objects = [];
    for (let row = 0; row < 6; row++) {
        await page.locator(".objects tbody tr.choosable").nth(row).click();
        await drawn(page);
        objects.push(/object=(\d+)/.exec(page.url())[1]);
        await page.locator("#object-detail button", { hasText: "Close" }).click();
        await drawn(page);
    }
    await done();
    let mapped = 0;
    for (const object of objects) {
        const { page, done } = await open("latency-cells.html", { fragment: `#time=${time}&object=${object}` });
        assert.ok((await page.locator(".latency-picture rect").count()) > 0, "the slice that holds the range has latencies");
        assert.match(await text(page, ".latency"), /holds latencies in slices of .*count as a whole, from .* to /);
        const words = await text(page, ".page-maps");
        if (/holds page maps in slices of .*count as a whole, from .* to /.test(words)) {
            mapped++;
            assert.ok(await isPainted(page, "#object-detail canvas.pages >> nth=0"));
        } else assert.match(words, /No access to it passes the filters/, "it has a page map");
        await done();
    }
    assert.ok(mapped > 0, "some of them were accessed in the slice that holds the range");
});

test("slices of the metrics over time are made of whole slices of the cells", async () => {
    // Some of one more than others would draw waves that the recording does not have.
    for (const name of ["big.html", "latency-cells.html"]) {
        const { grain, duration_ns } = dataOf(name).head;
        assert.equal(grain.kind, "cells");
        assert.ok(grain.page_bin_ns % grain.bin_ns === 0 && grain.latency_bin_ns % grain.bin_ns === 0, JSON.stringify(grain));
        const { page, done } = await open(name);
        await page.locator(".metrics details.behind summary").click();
        await page.locator(".metrics details.behind tbody tr").first().waitFor({ state: "attached" });
        const each = Math.ceil(Math.ceil(duration_ns / grain.bin_ns) / 60) * grain.bin_ns;
        assert.equal(await page.locator(".metrics details.behind tbody tr").count(), Math.ceil(duration_ns / each), name);
        await done();
    }
});

test("a link's demand in a part of a slice is that of the slice, whose accesses are counted as a whole", async () => {
    const { grain, start_ns: start, duration_ns } = dataOf("big.html").head;
    const slice = start + Math.floor(duration_ns / grain.bin_ns / 2) * grain.bin_ns;
    const demand = async (from, to) => {
        const time = [from, to].map((part) => Math.round(slice + part * grain.bin_ns)).join("-");
        const { page, done } = await open("big.html", { fragment: `#time=${time}` });
        await page.locator(".topology details.behind summary").click();
        await page.locator(".topology details.behind tbody tr").first().waitFor({ state: "attached" });
        const cells = await page.locator(".topology details.behind tbody td:last-child").allInnerTexts();
        await done();
        return cells;
    };
    const whole = await demand(0, 1);
    assert.ok(whole.some((cell) => / %$/.test(cell) && !/^0\.0/.test(cell)), whole.join());
    assert.deepEqual(await demand(0.4, 0.5), whole);
});

test("names and command lines of any length leave room for the rest", async () => {
    const { page, done } = await open("hostile-names.html");
    const heights = (selector) => page.locator(selector).evaluateAll((parts) => parts.map((part) => part.getBoundingClientRect().height));
    for (const selector of [".findings li", ".about dd"])
        for (const height of await heights(selector)) assert.ok(height < 400, `${selector}: ${height}`);
    const rows = page.locator(".objects tbody tr.choosable");
    for (let row = 0; row < 4; row++) {
        await rows.nth(row).click();
        await drawn(page);
        for (const height of await heights("#object-detail .where-born")) assert.ok(height < 200, `row ${row}: ${height}`);
        await page.locator("#object-detail button", { hasText: "Close" }).click();
        await drawn(page);
    }
    await done();
});

test("links that make no sense show the whole", async () => {
    for (const fragment of ["#time=9-1&from=77&thread=9999&site=S99999999&object=4000000&function=-1&only=nonsense", "#%", "#time=x&&&="]) {
        const { page, done } = await open("streamcluster.html", { fragment });
        assert.equal(await page.locator(".chip").count(), 0, fragment);
        await done();
    }
});

/** Whatever was recorded: the page is drawn, narrow and wide, and choosing works as far as there is something to choose. */
for (const name of readdirSync(folder).filter((name) => name.endsWith(".html") && name !== "streamcluster.html")) {
    test(`${name} is drawn and can be explored`, async () => {
        const report = figures(name.replace(/\.html$/, ".json"));
        for (const width of [1400, 500]) {
            const { page, done } = await open(name, { width });
            const [wide, room] = await page.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
            assert.ok(wide <= room, `${wide} pixels on ${room}`);
            const isHeapOnly = (await page.locator("main > .heap").count()) > 0 && (await page.locator(".objects").count()) === 0;
            assert.equal(isHeapOnly, name === "track.html", "only a recording of allocations alone leaves out the views of accesses");
            const hasAccesses = report.headline.totals.accesses.value > 0;
            if (hasAccesses) {
                const values = await page.locator(".figure-value").allInnerTexts();
                assert.equal(percentOf(values[0]), Number((report.headline.totals.remote_share.value * 100).toFixed(1)), "the report's own figure");
                assert.equal(await page.locator(".cell").count(), report.nodes.length ** 2);
                const rows = page.locator(".objects tbody tr.choosable");
                const row = rows.nth(Math.min(2, (await rows.count()) - 1));
                await row.click();
                await drawn(page);
                assert.ok(await page.locator("#object-detail").isVisible());
                assert.ok((await page.locator(".chip").count()) >= 1);
            } else if (isHeapOnly) {
                assert.match(await text(page, ".verdict"), /^Allocations were recorded, but no memory accesses/);
                assert.equal(await page.locator(".heap tbody tr").count(), Math.min(report.heap.sites.length, 10));
                const most = report.heap.sites.reduce((a, b) => (b.at_peak_bytes > a.at_peak_bytes ? b : a));
                assert.ok((await text(page, ".heap tbody tr")).includes(most.name), "the site with most of the peak comes first");
            } else assert.match(await text(page, ".overview"), /No memory access was recorded/);
            if (report.recording.thread_count > 0 && !isHeapOnly) {
                await page.locator(".threads tbody tr.choosable").first().click();
                await drawn(page);
                assert.match(page.url(), /thread=\d+/);
            }
            if (report.limits.length > 0) assert.ok((await text(page, ".about")).includes(report.limits[0]), "losses are listed");
            // Whatever names hold, it is text: no element came from data.
            assert.equal(await page.locator("main script, main img, main iframe, main object, main embed, main form, main link").count(), 0);
            assert.equal(await page.evaluate(() => document.title.includes(" on ")), true);
            await done();
        }
    });
}
