// What the page says where it does not know: of folded threads, sites and objects, of unknown homes, of recordings that sampled no accesses. The pages
// are those of page.test.mjs with other data.
import assert from "node:assert/strict";
import { test } from "node:test";
import { dataOf, drawn, open, openChanged, text } from "./browser.mjs";

const [REST_OF_SITE, OTHER_OBJECTS] = [1, 2];

/** Sums of the rows' samples by a column. */
function samplesBy(columns, name) {
    const sums = new Map();
    columns[name].forEach((value, row) => sums.set(value, (sums.get(value) ?? 0) + columns.row_samples[row]));
    return sums;
}

/** The key with most samples among those that `wanted` lets pass. */
function most(sums, wanted) {
    return [...sums].filter(([value]) => wanted(value)).sort((a, b) => b[1] - a[1])[0][0];
}

/** Folds the busiest thread, and a site with all of its objects, into others. Returns their numbers, and an object of the site. */
function foldSome(head, columns) {
    const thread = most(samplesBy(columns, "row_thread"), (value) => value >= 0);
    columns.row_thread = columns.row_thread.map((value) => (value === thread ? -1 : value));
    const keys = samplesBy(columns, "row_object");
    // Findings lead to the first of them.
    const site = columns.key_site[most(keys, (key) => columns.key_site[key] >= 0)];
    columns.key_site.forEach((value, key) => {
        if (value !== site) return;
        [columns.key_site[key], columns.key_instance[key], columns.key_kind[key]] = [-1, -1, OTHER_OBJECTS];
    });
    head.grain.folded.threads = 0.1;
    return { thread, site: columns.site_id[site], object: columns.instance_id[columns.instance_site.indexOf(site)] };
}

test("folded threads and sites are listed with their figures and cannot be chosen, in no view and no link", async () => {
    let folded;
    const change = (head, columns) => (folded = foldSome(head, columns));
    const { page, done } = await openChanged("big.html", change, { fragment: "#threads.sort=share" });
    const thread = page.locator(`.threads tbody tr[data-key="${folded.thread}"]`);
    assert.equal(await thread.count(), 1);
    assert.equal(await thread.locator("button.choose").count(), 0);
    assert.match(await thread.innerText(), /folded/);
    assert.match(await thread.locator("td:nth-child(4)").getAttribute("title"), / [1-9]\d* samples$/, "its samples are known");
    assert.equal(await thread.locator(".node-bar").count(), 1, "and what serves them");
    assert.equal(await page.locator('.threads tbody tr[data-key="-1"]').count(), 0, "nothing is told twice");
    assert.equal(await page.locator(".objects tbody tr", { hasText: "folded" }).locator("button.choose").count(), 0);
    await done();
    const links = [`thread=${folded.thread}`, `site=S${folded.site}`, `object=${folded.object}`];
    for (const link of links) {
        const { page, done } = await openChanged("big.html", change, { fragment: `#${link}` });
        assert.equal(await page.locator(".chip").count(), 0, link);
        assert.equal(await page.locator(".passing").count(), 0, link);
        assert.match(await text(page, ".filterbar .warning"), /cannot filter by .+, which it holds only summed up with others/, link);
        assert.equal(await page.locator(".figure-value").count(), 3, "the whole is shown");
        await done();
    }
});

test("a folded object shows the rest of its site, and not the objects of it that have rows of their own", async () => {
    const { columns } = dataOf("big.html");
    const own = new Set(columns.key_instance);
    const kinds = (site) => columns.key_kind.filter((_, key) => columns.key_site[key] === site);
    const isMixed = (site) => kinds(site).includes(0) && kinds(site).includes(REST_OF_SITE);
    const instance = columns.instance_site.findIndex((site, index) => !own.has(index) && isMixed(site));
    assert.ok(instance >= 0, "some site has both");
    const [all, rest] = [0, 0].map((_, part) =>
        columns.row_weight.reduce((sum, weight, row) => {
            const key = columns.row_object[row];
            const isRest = columns.key_kind[key] === REST_OF_SITE && columns.key_site[key] === columns.instance_site[instance];
            return sum + (part === 0 || isRest ? weight : 0);
        }, 0),
    );
    const { page, done } = await open("big.html", { fragment: `#object=${columns.instance_id[instance]}` });
    assert.equal((await text(page, ".passing")).split(" of ")[0], `${((rest / all) * 100).toFixed(1)} %`);
    assert.match(await text(page, "#object-detail"), /folded into its allocation site/);
    await done();
});

test("counts of threads that leave out folded ones are lower bounds", async () => {
    const { page, done } = await openChanged("big.html", foldSome, { fragment: "#only=reads" });
    const cells = await page.locator(".objects tbody tr td:nth-child(13)").allInnerTexts();
    assert.ok(cells.some((cell) => /^≥ [1-9]\d*$/.test(cell)), cells.join());
    await done();
});

test("folded objects with samples enough are not said to have too few, and what is not worked out is not said", async () => {
    const id = 987654321;
    const change = (head, columns) => {
        const own = new Set(columns.key_instance);
        const index = columns.instance_id.findIndex((_, index) => !own.has(index));
        columns.instance_id[index] = id;
        columns.instance_samples[index] = 5000;
        columns.instance_known[index] = columns.instance_weight[index];
        columns.instance_remote[index] = columns.instance_weight[index];
    };
    const { page, done } = await openChanged("big.html", change, { fragment: "#objects.by=instance" });
    await page.locator(".objects input").fill(String(id));
    await drawn(page);
    const row = page.locator(".objects tbody tr");
    assert.equal(await row.count(), 1);
    assert.equal(await row.locator("td").last().innerText(), "–");
    assert.equal(await row.locator("td").last().getAttribute("title"), "folded: not worked out");
    await done();
});

test("sums over listed objects are lower bounds where not all are listed", async () => {
    const change = (head) => {
        head.grain.instances = head.grain.instances_listed + 1000;
        head.sites = head.sites.slice(0, 3);
    };
    const { page, done } = await openChanged("big.html", change);
    const shares = await page.locator(".objects tbody tr td:nth-child(3)").allInnerTexts();
    assert.ok(shares.length > 4 && shares.some((share) => !share.startsWith("≥")), "what was computed from all is exact");
    assert.ok(shares.filter((share) => share.startsWith("≥ ")).length >= shares.length - 3, shares.join());
    assert.match(await text(page, ".objects .table-foot"), /1000 objects with fewer accesses are not in this page/);
    await done();
});

test("metrics over time have gaps where no home is known and where nothing was seen", async () => {
    let unknown;
    const change = (head, columns) => {
        const rows = columns.row_step.length;
        // A quarter of the rows without homes, then a pause.
        unknown = columns.row_step.slice(0, rows / 4).reduce((sum, step) => sum + step, 0);
        columns.row_home = columns.row_home.map((home, row) => (row < rows / 4 ? -1 : home));
        columns.row_step[Math.floor(rows / 2)] += head.duration_ns / 4;
        unknown /= head.duration_ns *= 1.25;
    };
    const { page, done } = await openChanged("streamcluster.html", change);
    await page.locator(".metrics details.behind summary").click();
    await page.locator(".metrics details.behind tbody tr").first().waitFor({ state: "attached" });
    const rows = await page.locator(".metrics details.behind tbody tr").evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent)));
    assert.ok(!rows.flat().some((cell) => cell.includes("NaN")), rows.join("\n"));
    const seen = rows.findIndex((row) => row[1] !== "0/s");
    assert.deepEqual([rows[seen][2], rows[seen][4]], ["–", "–"], "no home is known");
    assert.match(rows[seen][3], / %$/, "writes are");
    const pause = rows.findIndex((row, index) => index > rows.length / 4 && row[1] === "0/s");
    assert.deepEqual(rows[pause].slice(1), ["0/s", "–", "–", "–"]);
    const start = async (chart) => Number(/^M([\d.]+)/.exec(await page.locator(".chart .line").nth(chart).getAttribute("d"))[1]) / 320;
    assert.ok((await start(1)) > unknown - 0.02 && (await start(3)) > unknown - 0.02, "their lines begin where homes are known");
    assert.ok((await start(2)) < unknown, "writes are known before");
    await done();
});

/** Numbers of pixels of a canvas that have these colours. Read once: the browser complains of more. */
const pixels = (page, selector, ...colours) =>
    page
        .locator(selector)
        .first()
        .evaluate((canvas, colours) => {
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return colours.map(([r, g, b]) => {
                let found = 0;
                for (let i = 0; i < data.length; i += 4)
                    if (data[i + 3] > 100 && Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 12) found++;
                return found;
            });
        }, colours);

const [LOCAL, UNKNOWN] = [
    [74, 123, 183],
    [181, 186, 194],
];

test("what has no known home has the colour of neither local nor remote", async () => {
    const change = (head, columns) => (columns.row_home = columns.row_home.map(() => -1));
    const { page, done } = await openChanged("streamcluster.html", change, { fragment: "#flame.of=all" });
    const block = page.locator(".flame .block").first();
    assert.match(await block.getAttribute("title"), /; no home is known$/);
    assert.equal(await block.evaluate((element) => getComputedStyle(element).backgroundColor), `rgb(${UNKNOWN.join(", ")})`);
    assert.match(await text(page, ".flame-card .keys"), /unknown home/);
    await page.locator(".flame-card details.behind summary").click();
    assert.match(await text(page, ".flame-card details.behind tbody tr"), /–$/);
    await page.locator(".flame-card select[aria-label='Which accesses']").selectOption("remote");
    await drawn(page);
    assert.match(await text(page, ".flame"), /^The home nodes of these accesses are unknown/);
    const [grey, blue] = await pixels(page, ".threads canvas.spark", UNKNOWN, LOCAL);
    assert.ok(grey > 0 && blue === 0, `${grey} grey, ${blue} blue`);
    await page.locator(".objects tbody tr.choosable").first().click();
    await drawn(page);
    assert.match(await text(page, "#object-detail .keys"), /unknown home/);
    assert.deepEqual(await pixels(page, "#object-detail canvas.strips", LOCAL), [0]);
    await done();
});

test("what a filter by homes lets pass is a lower bound where some are unknown", async () => {
    const change = (head, columns) => (columns.row_home = columns.row_home.map((home, row) => (row % 4 ? home : -1)));
    for (const [fragment, isBound] of [["only=remote", true], ["home=0", true], ["only=reads", false], ["thread=2", false]]) {
        const { page, done } = await openChanged("streamcluster.html", change, { fragment: `#${fragment}` });
        assert.equal((await text(page, ".passing")).startsWith("at least "), isBound, fragment);
        await done();
    }
});

test("latencies of accesses without known home have a key", async () => {
    const change = (head, columns) => (columns.row_home = columns.row_home.map((home, row) => (row % 2 ? -1 : home)));
    const { page, done } = await openChanged("latency.html", change);
    assert.match(await text(page, ".latency .keys"), /local\s*remote\s*unknown home/);
    await done();
});

test("the machine and the matrix say what their shares are of", async () => {
    const part = (estimate) => estimate.map((value) => value * 0.6);
    const change = (head) => {
        head.headline.totals.served = head.headline.totals.served.map(part);
        head.matrix.accesses = head.matrix.accesses.map((row) => row.map(part));
    };
    const { page, done } = await openChanged("streamcluster.html", change);
    const left = / %.* of the accesses have an unknown home and are not in this picture/;
    assert.match(await text(page, ".matrix > .faint"), left);
    assert.match(await text(page, ".topology .legend"), left);
    assert.match(await text(page, ".topology .legend"), /100 % of accesses with known home/);
    assert.match(await page.locator(".matrix-table .cell").first().getAttribute("title"), / % of accesses with known home$/);
    await done();
    const whole = await open("streamcluster.html", { fragment: "#home=0" });
    assert.doesNotMatch(await text(whole.page, ".topology .legend"), /known home/);
    await whole.done();
});

test("a filter decides by what passes whether enough homes are known", async () => {
    const isUnknown = (head, columns, thread) => {
        columns.row_home = columns.row_home.map((home, row) => (columns.row_thread[row] === thread ? home : -1));
        head.headline.verdict = "homes-unknown";
        head.headline.totals.served = head.headline.totals.served.map((estimate) => estimate.map((value) => value * 0.1));
    };
    const { page, done } = await openChanged("streamcluster.html", (head, columns) => isUnknown(head, columns, 3));
    assert.match(await text(page, ".overview .figures"), /The home node of most accesses is unknown, so no shares are shown/);
    for (const part of [".matrix-table", ".topology-picture"]) assert.equal(await page.locator(part).count(), 0, part);
    await page.locator(".threads input").fill("3");
    await drawn(page);
    await page.locator('.threads tbody tr[data-key="3"]').click();
    await drawn(page);
    assert.equal(await page.locator(".figure-value").count(), 3, "those of this thread are known");
    for (const part of [".matrix-table", ".topology-picture"]) assert.equal(await page.locator(part).count(), 1, part);
    await done();
    // And the other way round: most are known, most of what passes are not.
    const thread = 5;
    const change = (head, columns) => {
        columns.row_home = columns.row_home.map((home, row) => (columns.row_thread[row] === thread && row % 3 ? -1 : home));
    };
    const other = await openChanged("streamcluster.html", change, { fragment: `#thread=${thread}` });
    assert.match(await text(other.page, ".overview .figures"), /The home node of most of these accesses is unknown/);
    assert.equal(await other.page.locator(".matrix-table").count(), 0);
    await other.done();
});

test("a recording that sampled no accesses shows none of them, and no 0", async () => {
    const change = (head, columns) => {
        const nothing = [0, 0, 0];
        const { totals } = head.headline;
        head.headline.verdict = "not-sampled";
        head.headline.top = null;
        Object.assign(totals, { samples: 0, accesses: nothing, served: totals.served.map(() => nothing), source: "sampled" });
        for (const column of Object.keys(columns).filter((name) => name.startsWith("row_"))) columns[column] = [];
        head.matrix.accesses = head.matrix.accesses.map((row) => row.map(() => nothing));
        [head.sites, head.functions, head.site_count, head.grain.samples] = [[], [], 0, 0];
        for (const row of head.threads) Object.assign(row, { samples: 0, accesses: nothing, share: [0, 0, 1], remote: [0, 0, 1], writes: [0, 0, 1] });
    };
    const { page, done } = await openChanged("streamcluster.html", change);
    assert.match(await text(page, ".overview .figures"), /No event of memory accesses was sampled/);
    for (const part of [".topology", ".time", ".flame-card", ".functions", ".matrix", ".latency", ".metrics", ".filterbar select"])
        assert.equal(await page.locator(part).count(), 0, part);
    assert.deepEqual(await page.locator(".filterbar nav a").allInnerTexts(), ["Findings", "Objects", "Heap", "Threads", "About"]);
    assert.match(await text(page, ".about"), /not sampled: no event of this recording samples memory accesses/);
    assert.equal(await page.locator(".threads tbody tr").count(), 16, "threads are known");
    assert.match(await text(page, ".threads tbody tr td:nth-child(4)"), /^–$/);
    await done();
    const blind = await openChanged("streamcluster.html", (head) => (head.headline.verdict = "blind"));
    assert.match(await text(blind.page, ".overview .figures"), /Too few accesses were seen/);
    for (const part of [".matrix-table", ".topology-picture"]) assert.equal(await blind.page.locator(part).count(), 0, part);
    await blind.done();
});

test("accesses to folded objects are to other objects, and a thread's part of the rows does not depend on filters", async () => {
    let thread;
    const change = (head, columns) => {
        columns.key_kind = columns.key_kind.map(() => OTHER_OBJECTS);
        columns.key_site = columns.key_site.map(() => -1);
        columns.key_instance = columns.key_instance.map(() => -1);
        thread = most(samplesBy(columns, "row_thread"), (value) => value >= 0);
    };
    const { page, done } = await openChanged("big.html", change, { fragment: "#threads.sort=share" });
    await page.locator(`.threads tbody tr[data-key="${thread}"]`).click();
    await drawn(page);
    await page.locator(".flow summary").click();
    assert.match(await text(page, ".flow tbody"), /\(other objects\)/);
    const words = await text(page, ".thread-detail > .faint");
    assert.match(words, / % of the page's rows belong to this thread/);
    await page.locator(".filters select").selectOption("writes");
    await drawn(page);
    assert.equal(await text(page, ".thread-detail > .faint"), words);
    await done();
});

test("marks that are not drawn are counted", async () => {
    const change = (head) => {
        head.marks = Array.from({ length: 450 }, (_, mark) => [head.start_ns + (head.duration_ns * mark) / 450, `step ${mark}`]);
    };
    const { page, done } = await openChanged("streamcluster.html", change);
    assert.match(await text(page, ".time"), /The last 50 marks are not drawn\./);
    await done();
});

test("the link that skips to the objects keeps the filters", async () => {
    const { page, done } = await open("streamcluster.html", { fragment: "#thread=2" });
    await page.locator("a.skip").focus();
    await page.keyboard.press("Enter");
    await drawn(page);
    assert.match(page.url(), /#thread=2$/);
    assert.equal(await page.locator(".chip").count(), 1);
    assert.equal(await page.evaluate(() => document.activeElement.id), "objects-section");
    await done();
});

test("a link to a function means it in every page of the recording, and half a link chooses nothing", async () => {
    const { page, done } = await open("streamcluster.html");
    await page.locator(".functions tbody tr").first().click();
    await drawn(page);
    const chip = await text(page, ".chip");
    const [, number, key] = /function=(\d+)-([0-9a-f]+)/.exec(page.url());
    await done();
    // Another page numbers functions in another order.
    const links = [
        [`#function=${Number(number) + 1}-${key}`, [chip]],
        [`#function=${number}-0`, []],
        [`#function=${number}`, []],
        ["#thread=&from=&home=", []],
        ["#thread=1e0", []],
    ];
    for (const [fragment, chips] of links) {
        const { page, done } = await open("streamcluster.html", { fragment });
        assert.deepEqual(await page.locator(".chip").allInnerTexts(), chips, fragment);
        await done();
    }
});

test("no list that is made at a change of a filter has a place for each object and thread, or node, or for each thread and slice of time", async () => {
    const [objects, threads] = [50_000, 4096];
    let given;
    const change = (head, columns) => {
        for (const name of Object.keys(columns).filter((name) => name.startsWith("instance_"))) {
            const last = columns[name].at(-1);
            while (columns[name].length < objects) columns[name].push(last);
        }
        columns.instance_id = columns.instance_id.map((_, index) => index);
        const idle = { ...head.threads[0], samples: 0, share: [0, 0, 0] };
        while (head.threads.length < threads) head.threads.push({ ...idle, thread: head.threads.length });
        given = Math.max(...Object.values(columns).map((column) => column.length));
    };
    // The longest list, by its number of places.
    const before = () => {
        window.longest = 0;
        const watch = (list) =>
            new Proxy(list, {
                construct: (target, given) => {
                    if (typeof given[0] === "number") window.longest = Math.max(window.longest, given[0]);
                    return new target(...given);
                },
            });
        for (const name of ["Int32Array", "Uint32Array", "Float64Array"]) window[name] = watch(window[name]);
    };
    const { page, done } = await openChanged("streamcluster.html", change, { fragment: "#objects.by=instance&only=reads", before });
    assert.ok((await page.locator(".objects tbody tr").count()) > 1);
    const longest = await page.evaluate(() => window.longest);
    assert.ok(longest <= given, `a list of ${longest} places, longer than what the page holds`);
    await done();
});

test("without a filter, functions and objects have what was computed from every sample, folded or not", async () => {
    const change = (head) => {
        head.functions[0].samples = 1234;
        head.sites[0].threads = 999;
    };
    const { page, done } = await openChanged("streamcluster.html", change);
    assert.match(await page.locator(".functions tbody tr td:nth-child(2)").first().getAttribute("title"), / 1234 samples$/);
    await page.locator(".objects tbody tr.choosable").first().click();
    await drawn(page);
    const threads = page.locator("#object-detail .fact", { hasText: "Threads" });
    assert.equal(await threads.locator(".fact-value").innerText(), "999");
    await done();
});

test("objects of Java are estimates with their intervals, and a page without any has no such section", async () => {
    const about = (value) => [value, value * 0.9, value * 1.1];
    const usage = (samples, bytes) => ({
        samples,
        allocations: about(bytes / 1000),
        allocated_bytes: about(bytes),
        at_peak_bytes: about(bytes / 2),
        left_bytes: [0, 0, 0],
        allocating_threads: 2,
    });
    const site = (number, name, line, used) => ({ site: number, name, place: `Grid.java:${line}`, function: "acme.Grid.fill", ...used });
    const change = (head) => {
        head.sampled_heap = {
            interval_bytes: [65536, 131072],
            total: usage(70, 5 << 20),
            peak_time: 2_000_000,
            site_count: 3,
            sites: [site(900, "double[]", 12, usage(60, 4 << 20)), site(901, "byte[]", 20, usage(10, 1 << 20))],
        };
    };
    const { page, done } = await openChanged("track.html", change);
    const section = await text(page, ".sampled");
    assert.match(section, /Estimated from samples/);
    assert.match(section, /70 samples: one for each 64\.0 KiB to 128 KiB that a thread allocated, on average/);
    assert.match(section, /1 more site is in the text report/);
    const row = await text(page, ".sampled tbody tr");
    assert.match(row, /double\[\].*Grid\.java:12.*4\.00 MiB ± 10 %/s, "most bytes first, with half of the interval");
    assert.equal(await page.locator('nav a[href="#java-section"]').count(), 1);
    await done();
    const plain = await open("track.html");
    assert.equal(await plain.page.locator(".sampled, nav a[href='#java-section']").count(), 0);
    await plain.done();
});

test("what few objects with a known allocating thread show is not said of all", async () => {
    const shown = async (page) => {
        const rows = await page.locator(".objects tbody tr.choosable").all();
        return Promise.all(rows.map(async (row) => (await row.locator("td").allInnerTexts()).filter((_, cell) => [4, 8, 9].includes(cell))));
    };
    const [HAS_ALLOCATOR, BY_ALLOCATOR, BEFORE_OTHERS] = [2, 4, 8];
    // A tenth of each object's accesses is to an object whose allocating thread is known, and that thread makes all of these.
    const change = (_, columns) => {
        const seen = new Map();
        columns.row_flags = columns.row_flags.map((flags, row) => {
            const place = seen.get(columns.row_object[row]) ?? 0;
            seen.set(columns.row_object[row], place + 1);
            return (flags & 1) | (place % 10 === 9 ? HAS_ALLOCATOR | BY_ALLOCATOR | BEFORE_OTHERS : 0);
        });
    };
    const few = await openChanged("streamcluster.html", change, { fragment: "#from=1" });
    const cells = await shown(few.page);
    assert.ok(cells.length > 0 && cells.every((row) => row.every((cell) => cell === "–")), JSON.stringify(cells));
    await few.done();
    const { page, done } = await open("streamcluster.html", { fragment: "#from=1" });
    assert.ok((await shown(page)).some((row) => row.every((cell) => cell !== "–")), "of most, they are known");
    await done();
});

test("pinning avoids no accesses to the memory of a node without CPUs, under a filter either", async () => {
    const [HAS_ALLOCATOR, BY_ALLOCATOR] = [2, 4];
    for (const [cpus, pinned] of [
        [4, "100"],
        [0, "·"],
    ]) {
        const change = (head, columns) => {
            // All are to the first node, by the threads that allocated what they access.
            columns.row_home = columns.row_home.map(() => 0);
            columns.row_flags = columns.row_flags.map((flags) => flags | HAS_ALLOCATOR | BY_ALLOCATOR);
            head.machine.nodes.find((node) => node.id === head.nodes[0]).cpus = cpus;
        };
        const { page, done } = await openChanged("streamcluster.html", change, { fragment: "#from=1" });
        const cells = await page.locator(".objects tbody tr.choosable td:nth-child(6) .over").allInnerTexts();
        assert.ok(cells.length > 0 && cells.every((cell) => cell === pinned), `${cpus} CPUs: ${cells.join()}`);
        await done();
    }
});

test("of a machine whose links are not known, pairs of nodes are drawn, the busiest of many, and the page says so", async () => {
    for (const nodes of [4, 12, 64]) {
        const change = (head) => {
            head.machine.nodes = head.machine.nodes.slice(0, nodes);
            [head.machine.links, head.machine.routes, head.machine.routers] = [[], [], []];
            // Every node has traffic with every other.
            head.matrix.accesses = head.matrix.accesses.map((row, from) => row.map((_, home) => Array(3).fill(1000 + 64 * from + home)));
        };
        const { page, done } = await openChanged("nodes-64.html", change);
        assert.equal(await page.locator(".wire").count(), nodes === 4 ? 12 : 24, `${nodes} nodes`);
        const legend = await text(page, ".topology .legend");
        assert.match(legend, /How the nodes are connected is not known: an arrow is a pair of nodes\./);
        if (nodes === 4) assert.doesNotMatch(legend, /busiest/);
        else assert.match(legend, new RegExp(`Of ${nodes * (nodes - 1)} pairs with traffic the 24 busiest are drawn`));
        await done();
    }
    const { page, done } = await open("nodes-64.html");
    assert.match(await text(page, ".topology .legend"), /Of \d+ links the 24 busiest are drawn/);
    assert.doesNotMatch(await text(page, ".topology .legend"), /is not known/);
    await done();
});
