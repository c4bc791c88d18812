// One object, or all of a place: its threads over time, its pages, who reaches it from where, its allocation and the code that reaches it.

import { lineOf, lines, type ObjectLine } from "../decision";
import { defined } from "../definitions";
import { h, replace, type Child } from "../dom";
import { shareOf } from "../estimate";
import { bare, bytes, count, elide, interval, percent, plural, share, timeNs } from "../format";
import { PATTERNS, REMOTE, UNKNOWN, WRITE, type Frame } from "../model";
import * as palette from "../palette";
import type { DecisionRow } from "../payload";
import { OBJECT, type Selection } from "../selection";
import type { Context, View } from "../view";
import { said, sentence } from "../words";
import { nodeBar } from "./columns";
import { threadsOf } from "./objects";
import { PageMaps } from "./pages";
import { Strips, type Strip } from "./strips";
import { DIRECTIONS, keys, REACHES, splitChoice } from "./timeline";

const STACKS = 4;

export function objectDetail(context: Context): View {
    const { model, store } = context;
    const title = h("h2");
    const facts = h("div", { class: "facts" });
    const strips = new Strips(model, `${sentence(said.many)} by thread over time`);
    const choice = splitChoice(
        context,
        "object.colour",
        [
            ["reach", "local and remote"],
            ["rw", "reads and writes"],
        ],
        "reach",
        "What colours the cells",
    );
    const legend = h("span", { class: "keys" });
    const maps = new PageMaps(context);
    const code = h("div", { class: "stacks" });
    const shut = (): void => {
        store.set({ site: -1, instance: -1 });
        // It takes its button with it: the focus goes to where objects are chosen.
        document.getElementById("objects-section")?.focus({ preventScroll: true });
    };
    const close = h("button", { type: "button", class: "quiet", click: shut }, "Close");
    const element = h(
        "section",
        { class: "card detail", id: "object-detail", tabindex: -1, "aria-label": "Object in detail", hidden: true },
        h("div", { class: "card-head" }, title, close),
        facts,
        h("div", { class: "card-head sub" }, h("h3", {}, defined("By thread, over time", "Object by thread")), choice, legend),
        strips.element,
        h("h3", {}, defined("Pages over time", "Pages")),
        maps.element,
        code,
    );
    return {
        element,
        render: (selection) => {
            const { filter } = selection;
            element.hidden = filter.site < 0 && filter.instance < 0;
            if (element.hidden) return;
            const site = model.sites[filter.instance >= 0 ? model.instances.site[filter.instance] : filter.site];
            replace(title, "Object ", h("span", { class: "name" }, site.name));
            replace(facts, ...factsOf(context, selection));
            const byWrites = store.option("object.colour", "reach") === "rw";
            strips.redraw(byThread(context, selection, byWrites));
            const { all, known } = selection.whole();
            replace(legend, ...keys(byWrites ? DIRECTIONS() : REACHES(known.samples[0] < all.samples[0])));
            maps.show(selection, theInstance(context, selection));
            replace(code, ...codeOf(context, selection));
        },
    };
}

/** The instance that is shown: the chosen one, or the only one of the chosen site. */
function theInstance({ model }: Context, selection: Selection): number {
    const { filter } = selection;
    if (filter.instance >= 0) return model.hasRows[filter.instance] ? filter.instance : -1;
    let found = -1;
    for (let key = 0; key < model.keySite.length; key++) {
        if (model.keySite[key] !== filter.site) continue;
        if (found >= 0 || model.keyInstance[key] < 0) return -1;
        found = model.keyInstance[key];
    }
    return found;
}

function fact(name: string, term: string, value: Child, hint = ""): HTMLElement {
    return h("div", { class: "fact" }, h("div", { class: "fact-name" }, defined(name, term)), h("div", { class: "fact-value", title: hint }, value));
}

function factsOf(context: Context, selection: Selection): HTMLElement[] {
    const { model, store } = context;
    const { filter } = selection;
    const instance = filter.instance;
    const site = model.sites[instance >= 0 ? model.instances.site[instance] : filter.site];
    const others = store.conditions().some((name) => name !== "site" && name !== "instance");
    const row = instance < 0 && !others ? model.siteRows.get(site.id) : undefined;
    const line = lines(model, selection, model.oneGroup, 1, 0, () => ({})).at(0);
    const isFolded = instance >= 0 && model.hasRows[instance] === 0;
    const allocation =
        instance >= 0
            ? allocationWords(context, instance)
            : `${row ? sizeWords(row) : `${instancesOf(context, site.index)} seen accessed`}`;
    const whole = selection.whole(OBJECT).all.tally(0);
    const own = shareOf(selection.whole().all.tally(0), whole);
    const facts: (HTMLElement | false | undefined)[] = [
        h(
            "p",
            { class: "where-born" },
            [site.kind, [elide(site.place, 200), site.function && `in ${elide(site.function, 200)}`].filter((t) => t).join(" "), allocation]
                .filter((t) => t)
                .join(" · "),
        ),
        isFolded &&
            h(
                "p",
                { class: "warning" },
                `This object has few ${said.many}, which were folded into its allocation site to keep the page small. The figures below are of all ` +
                    "objects of that site without rows of their own.",
            ),
        line && h("div", { class: "fact-row" }, ...measures(context, line, row?.share ?? own, row)),
    ];
    return facts.filter((element) => element instanceof HTMLElement);
}

function measures(
    context: Context,
    line: ObjectLine,
    own: readonly [number, number, number],
    row: ReturnType<Context["model"]["siteRows"]["get"]>,
): HTMLElement[] {
    const number = (value: number): string => (Number.isNaN(value) ? "–" : percent(value));
    const best = row?.best_node ?? null;
    const bound = row?.read_only_bound ?? null;
    // Of an object with unknown homes, the row's shares are of the few accesses with a known one.
    const known = Number.isNaN(line.remote) ? undefined : row;
    const pattern = row?.pattern ?? line.pattern;
    return [
        fact("Share", "share", share(own), interval(own)),
        fact("Remote", "remote", known ? share(known.remote) : number(line.remote), known ? interval(known.remote) : ""),
        fact("Writes", "writes", bound !== null ? `none seen, < ${percent(bound)}` : row ? share(row.writes) : number(line.writes)),
        fact("Avoidable by pinning", "avoidable_by_pinning", known?.avoidable_by_pinning ? share(known.avoidable_by_pinning) : number(line.pin)),
        fact(
            best !== null ? `Avoidable on node ${best}` : "Avoidable elsewhere",
            "avoidable_by_allocating_elsewhere",
            known ? share(known.avoidable_by_allocating_elsewhere) : number(line.elsewhere),
        ),
        fact("By its allocating thread", "by_allocator", number(row?.by_allocator?.[0] ?? line.own)),
        fact("Before any other thread", "before_others", number(row?.before_others?.[0] ?? line.first)),
        fact("Accessed from", "from_node", byNode(context, line.from())),
        fact("Served by", "on_node", Number.isNaN(line.remote) ? "–" : byNode(context, line.on())),
        fact("Threads", "threads", threadsOf(row ? lineOf(context.model, row) : line)),
        fact("Use", "Patterns", pattern === null ? "–" : PATTERNS[pattern]),
        ...(row?.mean_latency_cycles ? [fact("Mean latency", "mean_latency_cycles", `${count(Math.round(row.mean_latency_cycles))} cycles`)] : []),
    ];
}

/** A bar by node with the largest shares in figures. */
function byNode(context: Context, shares: ArrayLike<number>): HTMLElement {
    const order = Array.from(shares, (share, position) => ({ share, position })).filter((part) => part.share > 0);
    order.sort((a, b) => b.share - a.share);
    const words = order.slice(0, 4).map((part) => `n${context.model.head.nodes[part.position]} ${bare(part.share)}`);
    return h(
        "div",
        { class: "by-node" },
        nodeBar(context, shares),
        h("span", { class: "faint" }, words.join(" · ") + (order.length > 4 ? " …" : "")),
    );
}

/** What a site's objects take: at their peak, and in all. */
function sizeWords(row: DecisionRow): string {
    const live = `${bytes(row.peak_live_bytes)} live at the peak in ${plural(row.peak_live_instances, "object", "objects")}`;
    return `${live}; ${bytes(row.total_allocated_bytes)} allocated in all in ${plural(row.allocated_instances, "object", "objects")}`;
}

/** `12 objects`; at least so many, where not all are listed. */
function instancesOf({ model }: Context, site: number): string {
    let count = 0;
    for (const of of model.instances.site) if (of === site) count++;
    const { grain } = model.head;
    return `${grain.instances > grain.instances_listed ? "at least " : ""}${plural(count, "object", "objects")}`;
}

function allocationWords({ model }: Context, index: number): string {
    const { instances } = model;
    const by = instances.thread[index] >= 0 ? ` by ${model.threadName(instances.thread[index])} (thread ${instances.thread[index]})` : "";
    const on = instances.node[index] >= 0 ? ` on node ${instances.node[index]}` : "";
    const death = Number.isNaN(instances.death[index]) ? "lives to the end" : `freed at ${timeNs(instances.death[index])}`;
    return (
        `#${instances.id[index]}, ${bytes(instances.bytes[index])} at ${instances.address(index)}, allocated at ` +
        `${timeNs(instances.birth[index])}${by}${on}, ${death}`
    );
}

/** A strip for each thread; colour: how remote, or how much written, a cell is. */
function byThread({ model }: Context, selection: Selection, byWrites: boolean): Strip[] {
    const { rows } = model;
    const bins = (): Float64Array => new Float64Array(model.bins);
    const threads = new Map<number, { all: Float64Array; known: Float64Array; marked: Float64Array }>();
    selection.each(0, (i) => {
        let own = threads.get(rows.thread[i]);
        if (!own) threads.set(rows.thread[i], (own = { all: bins(), known: bins(), marked: bins() }));
        const bin = model.rowBin[i];
        own.all[bin] += rows.weight[i];
        if (byWrites || rows.reach[i] !== UNKNOWN) own.known[bin] += rows.weight[i];
        if (byWrites ? (rows.flags[i] & WRITE) !== 0 : rows.reach[i] === REMOTE) own.marked[bin] += rows.weight[i];
    });
    const order = [...threads].sort((a, b) => a[0] - b[0]);
    return order.map(([thread, own]) => ({
        label: thread < 0 ? "other threads" : `${thread} ${model.threadName(thread)}`,
        values: own.all,
        colour: (bin) => {
            const part = own.known[bin] > 0 ? own.marked[bin] / own.known[bin] : NaN;
            return byWrites ? (part >= 0.5 ? palette.writes() : palette.reads()) : palette.distance(part);
        },
    }));
}

/** Where it was allocated, and the stacks that reach it most. */
function codeOf(context: Context, selection: Selection): HTMLElement[] {
    const { model } = context;
    const { rows, instances } = model;
    const { filter } = selection;
    let sample = filter.instance;
    for (let index = 0; sample < 0 && index < instances.count; index++) if (instances.site[index] === filter.site) sample = index;
    const stack = sample >= 0 ? model.stackFrames(instances.stack[sample]) : [];
    const weights = new Float64Array(model.codes.length);
    let all = 0;
    selection.each(0, (i) => {
        weights[rows.code[i]] += rows.weight[i];
        all += rows.weight[i];
    });
    const order = Array.from(weights.keys())
        .filter((code) => weights[code] > 0)
        .sort((a, b) => weights[b] - weights[a]);
    const reach = order.slice(0, STACKS).map((code, place) => {
        const list = [...model.codes[code]].reverse();
        const innermost = list[0] ? `, in ${model.functions[list[0].fn].name}` : "";
        return h(
            "details",
            { class: "stack", open: place === 0 },
            h("summary", { class: "stack-share" }, `${percent(all > 0 ? weights[code] / all : 0)} of its ${said.many}${innermost}`),
            frames(context, list),
        );
    });
    return [
        h(
            "div",
            {},
            h("h3", {}, filter.instance >= 0 ? "Allocated at" : "Allocated at (its first object in this list)"),
            stack.length > 0
                ? frames(context, stack)
                : h("p", { class: "faint" }, "No allocation stack: it is not a heap block, or it was allocated before the recording."),
        ),
        h(
            "div",
            {},
            h("h3", {}, defined("Accessed by", "Functions")),
            ...reach,
            order.length > STACKS && h("p", { class: "faint" }, `and ${plural(order.length - STACKS, "more call stack", "more call stacks")}`),
        ),
    ];
}

/** Frames, innermost first; each function can be chosen. */
export function frames({ model, store }: Context, list: readonly Frame[]): HTMLElement {
    if (list.length === 0) return h("p", { class: "faint" }, model.isCells ? "Folded: this code is rare." : "No call stack was recorded.");
    return h(
        "ol",
        { class: "frames" },
        ...list.map((frame) =>
            h(
                "li",
                {},
                h(
                    "button",
                    {
                        type: "button",
                        class: "link name",
                        click: () => store.toggle({ fn: frame.fn }),
                        title: `${model.functions[frame.fn].name}\n${frame.file}${frame.line ? `:${frame.line}` : ""}`,
                    },
                    model.functions[frame.fn].name,
                ),
                h("span", { class: "place" }, model.framePlace(frame), frame.inlined ? " (inlined)" : ""),
            ),
        ),
    );
}
