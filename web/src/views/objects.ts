// The object table: every place that objects come from, or every instance, with the decision row.

import { ifKnown, lineOf, lines, NOWHERE, ofPlace, type ObjectLine } from "../decision";
import { defined } from "../definitions";
import { h, replace, type Child } from "../dom";
import { isOfNothing } from "../estimate";
import { bytes, count, interval, marginPercent, percent, plural } from "../format";
import { PATTERNS } from "../model";
import * as palette from "../palette";
import { OBJECT, type Selection } from "../selection";
import { Table, type Column } from "../table";
import type { Context, View } from "../view";
import { said } from "../words";
import { nodesColumn, shareCell } from "./columns";
import { splitChoice } from "./timeline";

/** How many threads reach it: at least so many, where some are folded. */
export function threadsOf(line: ObjectLine): string {
    return Number.isNaN(line.threads) ? "–" : `${line.hasMoreThreads ? "≥ " : ""}${line.threads}`;
}

export function objects(context: Context): View & { focusSearch: () => void } {
    const { model, store } = context;
    const choice = splitChoice(
        context,
        "objects.by",
        [
            ["site", "by allocation site"],
            ["instance", "one by one"],
        ],
        "site",
        "How to list objects",
    );
    const table = new Table<ObjectLine>(store, {
        name: "objects",
        caption: "Objects and their decision rows",
        columns: columns(context),
        sortedBy: "share",
        rowsShown: 12,
        text: (row) =>
            `${row.name} ${row.place} ${row.kind} ${row.instance >= 0 ? model.instances.id[row.instance] : `S${model.sites[row.site]?.id ?? ""}`}`,
        searchHint: "Search objects",
        key: (row) => (row.instance >= 0 ? `i${row.instance}` : `s${row.site}`),
        isChosen: (row) =>
            row.instance >= 0 ? store.filter.instance === row.instance : row.site >= 0 && store.filter.site === row.site && store.filter.instance < 0,
        canChoose: (row) => (row.instance >= 0 ? model.canFilterByInstance(row.instance) : row.site >= 0 && model.foldedSites[row.site] === 0),
        choose: (row) => {
            if (row.instance >= 0) store.toggle({ instance: row.instance, site: -1 });
            else store.toggle({ site: row.site, instance: -1 });
        },
        label: (row) => `${row.name} ${row.place}, ${row.isPart ? "at least " : ""}${percent(row.share[0])} of ${said.many}`,
        note: () => note(context),
    });
    const keys = h("span", { class: "keys" });
    const element = h(
        "section",
        { class: "card objects", id: "objects-section", tabindex: -1, "aria-label": "Objects" },
        h(
            "div",
            { class: "card-head" },
            h("h2", {}, defined("Objects", "The decision row")),
            choice,
            keys,
            h("span", { class: "faint hint" }, "All in %. Choose a row to see its threads, pages, time and code"),
        ),
        table.element,
    );
    return {
        element,
        render: (selection) => {
            // Beside the columns From and On; many nodes are told apart by the bars' tool tips alone.
            const few = model.head.nodes.length <= 9 ? model.head.nodes : [];
            replace(
                keys,
                ...few.map((_, node) => h("span", { class: "key" }, h("i", { style: { background: palette.node(node) } }), model.nodeName(node))),
            );
            table.render(rows(context, selection));
        },
        focusSearch: () => table.focusSearch(),
    };
}

function rows(context: Context, selection: Selection): ObjectLine[] {
    const { model, store } = context;
    if (store.option("objects.by", "site") === "instance") return instances(context, selection);
    const isFilteredByOthers = store.conditions().some((name) => name !== "site" && name !== "instance");
    const computed = (): ObjectLine[] => lines(model, selection, model.rows.site, model.sites.length, OBJECT, (site) => siteWords(context, site));
    if (isFilteredByOthers) return computed();
    const known = model.head.sites.map((row) => lineOf(model, row));
    if (model.head.site_count <= known.length) return known;
    // Beyond the rows with intervals: sites that only the lists of instances still tell of.
    return [...known, ...restOfSites(context, new Set(known.map((row) => row.site)))];
}

function siteWords({ model }: Context, index: number): Partial<ObjectLine> {
    const site = model.sites[index];
    const row = model.siteRows.get(site.id);
    const isFolded = model.foldedSites[index] === 1;
    return {
        site: index,
        name: site.name,
        place: site.place,
        kind: site.kind,
        bytes: row?.peak_live_bytes ?? NaN,
        instances: row?.instances ?? NaN,
        isFolded,
        isPart: isFolded,
    };
}

/** Sums that the list of instances tells: of one object, or of all of a site. */
interface Told {
    bytes: number;
    instances: number;
    samples: number;
    weight: number;
    known: number;
    remote: number;
    writes: number;
}

/** A line from the list of instances alone: what is known of objects without rows of their own. */
function toldLine({ model }: Context, site: number, instance: number, told: Told): ObjectLine {
    const { name, place, kind } = model.sites[site];
    const line: ObjectLine = {
        site,
        instance,
        name,
        place,
        kind,
        // Sizes of several instances do not tell how much was live at once.
        bytes: told.instances > 1 ? NaN : told.bytes,
        instances: told.instances,
        samples: told.samples,
        accesses: told.weight,
        share: [model.allWeight > 0 ? told.weight / model.allWeight : 0, NaN, NaN],
        ofRemote: model.remoteWeight > 0 ? told.remote / model.remoteWeight : 0,
        remote: told.known > 0 ? told.remote / told.known : 0,
        pin: NaN,
        elsewhere: NaN,
        own: NaN,
        first: NaN,
        writes: told.weight > 0 ? told.writes / told.weight : 0,
        threads: NaN,
        hasMoreThreads: false,
        from: NOWHERE,
        on: NOWHERE,
        pattern: null,
        isFolded: instance >= 0 ? model.hasRows[instance] === 0 : model.foldedSites[site] === 1,
        // Objects of the site may be among those that are not listed.
        isPart: instance < 0 && model.head.grain.instances > model.head.grain.instances_listed,
    };
    const known = told.weight > 0 ? told.known / told.weight : 0;
    if (!line.isPart) line.pattern = ofPlace(told.samples, known, line.remote);
    return ifKnown(line, known);
}

function told({ model }: Context, index: number): Told {
    const { bytes, samples, weight, known, remote, writes } = model.instances;
    return {
        bytes: bytes[index],
        instances: 1,
        samples: samples[index],
        weight: weight[index],
        known: known[index],
        remote: remote[index],
        writes: writes[index],
    };
}

const instanceLine = (context: Context, index: number): ObjectLine =>
    toldLine(context, context.model.instances.site[index], index, told(context, index));

/** Lines of those sites that are not among `known`, from their instances. */
function restOfSites(context: Context, known: ReadonlySet<number>): ObjectLine[] {
    const { model } = context;
    const sites = new Map<number, Told>();
    for (let index = 0; index < model.instances.count; index++) {
        const site = model.instances.site[index];
        if (known.has(site)) continue;
        const [sum, own] = [sites.get(site), told(context, index)];
        if (!sum) sites.set(site, own);
        else for (const field of Object.keys(own) as (keyof Told)[]) sum[field] += own[field];
    }
    return [...sites].map(([site, sum]) => toldLine(context, site, -1, sum));
}

function instances(context: Context, selection: Selection): ObjectLine[] {
    const { model, store } = context;
    const { instances: table } = model;
    const computed = lines(model, selection, model.rows.instance, table.count, OBJECT, (index) => {
        const site = model.sites[table.site[index]];
        return {
            instance: index,
            site: table.site[index],
            name: site.name,
            place: site.place,
            kind: site.kind,
            bytes: table.bytes[index],
            instances: 1,
        };
    });
    if (store.conditions().some((name) => name !== "site" && name !== "instance")) return computed;
    // Without other filters, what has no rows of its own (folded, or never accessed) is told from the list.
    const told = new Set(computed.map((row) => row.instance));
    for (let index = 0; index < table.count; index++) if (!told.has(index)) computed.push(instanceLine(context, index));
    return computed;
}

function note({ model, store }: Context): Child {
    const { grain, recording } = model.head;
    const parts: string[] = [];
    const byInstance = store.option("objects.by", "site") === "instance";
    const unlisted = `${count(grain.instances - grain.instances_listed)} objects with fewer ${said.many}`;
    if (grain.instances > grain.instances_listed)
        parts.push(
            byInstance
                ? `${unlisted} are not listed.`
                : `${unlisted} are not in this page: of a site below the first ${count(model.head.sites.length)}, figures are of its other objects (≥).`,
        );
    if (recording.object_count > grain.instances && grain.samples > 0)
        parts.push(`${count(recording.object_count - grain.instances)} of ${count(recording.object_count)} objects have no sample.`);
    if (model.isCells) {
        const folded = percent(grain.folded.objects);
        parts.push(
            `Objects with few ${said.many} (${folded} of all) are folded into their allocation site. They are listed with figures of the whole ` +
                `recording; under a filter, the figures of the rest of their site are used.` +
                (model.foldedSites.includes(1) ? " Sites with few are folded, too: under a filter, figures are of what is left of them (≥)." : ""),
        );
    }
    return parts.join(" ");
}

function objectShare(row: ObjectLine): Child[] {
    const [value, low, high] = row.share;
    const isCounted = Number.isNaN(low) || low === high;
    return [
        h("i", { class: "bar", style: { width: `${(value * 100).toFixed(1)}%`, background: "var(--bar)" } }),
        h(
            "span",
            { class: "over" },
            row.isPart ? "≥ " : "",
            isCounted && !row.isPart ? percent(value).replace(" %", "") : (value * 100).toFixed(1),
            isCounted ? "" : h("span", { class: "margin" }, ` ± ${marginPercent(row.share).toFixed(1)}`),
        ),
    ];
}

function columns(context: Context): Column<ObjectLine>[] {
    const { model } = context;
    const share = (name: string, title: string, term: string, value: (row: ObjectLine) => number, isWide = false): Column<ObjectLine> => ({
        name,
        title,
        term,
        value: (row) => (Number.isNaN(value(row)) ? -1 : value(row)),
        cell: (row) => shareCell(value(row)),
        isWide,
        hint: (row) => (Number.isNaN(value(row)) ? "" : percent(value(row))),
    });
    return [
        {
            name: "name",
            title: "Object",
            isText: true,
            value: (row) => row.name.toLowerCase(),
            hint: (row) => `${row.name}\n${row.place}`,
            cell: (row) => [
                h("span", { class: "name" }, row.name),
                h(
                    "span",
                    { class: "place" },
                    [
                        row.place,
                        row.instance >= 0
                            ? `#${model.instances.id[row.instance]}`
                            : row.instances > 1
                              ? `${row.isPart ? "≥ " : ""}${plural(row.instances, "object", "objects")}`
                              : "",
                        row.isFolded ? "folded" : "",
                    ]
                        .filter((t) => t !== "")
                        .join(" · "),
                ),
            ],
        },
        {
            name: "bytes",
            title: "Peak size",
            value: (row) => row.bytes || 0,
            cell: (row) => (Number.isNaN(row.bytes) ? "–" : bytes(row.bytes)),
            isWide: true,
        },
        {
            name: "share",
            title: "Share",
            term: "share",
            value: (row) => row.share[0],
            cell: (row) => (isOfNothing(row.share) ? "–" : objectShare(row)),
            hint: (row) =>
                `${row.isPart ? "at least " : ""}${count(Math.round(row.accesses))} ${said.many}, ` +
                `${plural(row.samples, "sample", "samples")}${Number.isNaN(row.share[1]) ? "" : `; ${interval(row.share)}`}`,
        },
        share("remote-share", "Of remote", "share_of_remote", (row) => row.ofRemote),
        {
            name: "remote",
            title: "Remote",
            term: "remote",
            value: (row) => (Number.isNaN(row.remote) ? -1 : row.remote),
            cell: (row) => shareCell(row.remote, "--remote-bar"),
            hint: (row) =>
                Number.isNaN(row.remote)
                    ? `the home nodes of most of its ${said.many} are unknown`
                    : `${percent(row.remote)} of its ${said.many} are remote, ${percent(1 - row.remote)} local`,
        },
        share("pin", "Pin", "avoidable_by_pinning", (row) => row.pin, true),
        share("elsewhere", "Elsewhere", "avoidable_by_allocating_elsewhere", (row) => row.elsewhere, true),
        nodesColumn(context, "from", "From", "from_node", (row) => row.from()),
        nodesColumn(context, "on", "On", "on_node", (row) => row.on()),
        share("own", "Own", "by_allocator", (row) => row.own, true),
        share("first", "First", "before_others", (row) => row.first, true),
        share("writes", "Writes", "writes", (row) => row.writes, true),
        {
            name: "threads",
            title: "Threads",
            term: "threads",
            value: (row) => row.threads || 0,
            cell: threadsOf,
            isWide: true,
        },
        {
            name: "use",
            title: "Use",
            term: "Patterns",
            isText: true,
            value: (row) => row.pattern ?? "",
            cell: (row) => h("span", { class: "pattern" }, row.pattern === null ? "–" : PATTERNS[row.pattern]),
            hint: (row) => (row.pattern === null ? "folded: not worked out" : ""),
            isWide: true,
        },
    ];
}
