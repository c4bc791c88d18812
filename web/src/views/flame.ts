// Flame graphs of accesses by call stack: by the code that accesses, or by the place that allocated what is accessed.

import { defined } from "../definitions";
import { behind, h, refresh, replace } from "../dom";
import { count, percent } from "../format";
import { REMOTE, UNKNOWN, type Frame } from "../model";
import * as palette from "../palette";
import { CODE, OBJECT, type Selection } from "../selection";
import type { Context, View } from "../view";
import { said } from "../words";
import { keys, REACHES, splitChoice } from "./timeline";

const LINE = 19;
/** Narrower blocks are not drawn: nobody could read or hit them. */
const NARROWEST = 0.002;
/** Calls that are drawn, from the outermost: where stacks are cut, every block still has its whole share. */
const DEEPEST = 48;

interface Block {
    name: string;
    fn: number;
    site: number;
    place: string;
    value: number;
    /** Of it, with known home. */
    known: number;
    remote: number;
    /** By function; sites below zero. */
    children: Map<number, Block>;
}

const block = (name: string, fn: number, site: number, place: string): Block => {
    return { name, fn, site, place, value: 0, known: 0, remote: 0, children: new Map() };
};

/** The share of it that is remote; NaN where no home is known. */
const far = (at: Block): number => (at.known > 0 ? at.remote / at.known : NaN);

export function flame(context: Context): View {
    const { store } = context;
    const by = splitChoice(
        context,
        "flame.by",
        [
            ["code", "by accessing code"],
            ["birth", "by allocation site"],
        ],
        "code",
        "Whose call stacks",
    );
    const what = splitChoice(
        context,
        "flame.of",
        [
            ["remote", `remote ${said.many}`],
            ["all", `all ${said.many}`],
        ],
        "remote",
        `Which ${said.many}`,
    );
    const stage = h("div", { class: "flame", role: "tree", "aria-label": "Flame graph. Arrow keys move, enter zooms.", keydown: walk });
    const trail = h("div", { class: "trail" });
    const depth = h("p", { class: "faint hint" });
    const legend = h("span", { class: "keys" });
    let rows: (string | number)[][] = [];
    const table = behind(`Call stacks by ${said.many}`, ["Function", "Place", "Depth", "Share", "Remote"], () => rows);
    const element = h(
        "section",
        { class: "card flame-card", id: "code-section", tabindex: -1, "aria-label": "Flame graph" },
        h(
            "div",
            { class: "card-head" },
            h("h2", {}, defined("Flame graph", "Functions")),
            what,
            by,
            legend,
            h("span", { class: "faint hint" }, `Wider: more ${said.many}. Choose a block to zoom in, and to filter by it`),
        ),
        trail,
        stage,
        depth,
        table,
    );
    let zoom: number[] = [];
    let seen = "";
    const render = (selection: Selection): void => {
        const byBirth = store.option("flame.by", "code") === "birth";
        const onlyRemote = store.option("flame.of", "remote") === "remote";
        if (seen !== String(byBirth)) zoom = [];
        seen = String(byBirth);
        const { root, deeper } = tree(context, selection, byBirth, onlyRemote);
        const cut = deeper > 0 ? `${percent(deeper / root.value)} of them have stacks of more than ${DEEPEST} calls: the innermost are left out.` : "";
        replace(depth, cut);
        replace(legend, ...keys(onlyRemote ? [] : REACHES(root.known < root.value)));
        const path = descend(root, zoom);
        if (path.length - 1 !== zoom.length) zoom = zoom.slice(0, path.length - 1);
        const zoomTo = (to: number[]): void => {
            zoom = to;
            const hadFocus = stage.contains(document.activeElement) || trail.contains(document.activeElement);
            render(selection);
            if (hadFocus) stage.querySelector<HTMLElement>(".block")?.focus({ preventScroll: true });
        };
        drawTrail(context, trail, path, zoom, zoomTo);
        const whole = selection.whole(byBirth ? OBJECT : CODE);
        const isUnknown = onlyRemote && whole.all.samples[0] > 0 && whole.known.samples[0] === 0;
        const homesUnknown = `The home nodes of these ${said.many} are unknown, so it is unknown which are remote.`;
        const nothing = isUnknown ? homesUnknown : `No such ${said.one} passes the filters.`;
        if (root.value > 0) draw(stage, path, zoom, zoomTo, onlyRemote);
        else {
            stage.style.height = `${LINE + 2}px`;
            replace(stage, h("p", { class: "nothing" }, nothing));
        }
        rows = list(path[path.length - 1], root.value);
        refresh(table);
    };
    return { element, render };
}

/** From block to block by arrow keys: hundreds of stops for the tab key would stand before what follows. */
function walk(event: KeyboardEvent): void {
    const blocks = [...(event.currentTarget as Element).querySelectorAll<HTMLElement>(".block")];
    const at = blocks.indexOf(event.target as HTMLElement);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -at, End: blocks.length - 1 - at }[event.key];
    if (at < 0 || step === undefined) return;
    event.preventDefault();
    const next = blocks[Math.min(Math.max(at + step, 0), blocks.length - 1)];
    blocks[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
}

function tree(context: Context, selection: Selection, byBirth: boolean, onlyRemote: boolean): { root: Block; deeper: number } {
    const { model } = context;
    const { rows, instances } = model;
    let deeper = 0;
    const root = block(onlyRemote ? `all remote ${said.many}` : `all ${said.many}`, -1, -1, "");
    // Sums by code (or object) first: many rows, few stacks.
    const column = byBirth ? rows.key : rows.code;
    const size = byBirth ? model.keySite.length : model.codes.length;
    const [value, known, remote] = [new Float64Array(size), new Float64Array(size), new Float64Array(size)];
    const but = byBirth ? OBJECT : CODE;
    selection.each(but, (i) => {
        const isRemote = rows.reach[i] === REMOTE;
        if (onlyRemote && !isRemote) return;
        value[column[i]] += rows.weight[i];
        if (rows.reach[i] !== UNKNOWN) known[column[i]] += rows.weight[i];
        if (isRemote) remote[column[i]] += rows.weight[i];
    });
    const stackOf = new Map<number, Frame[]>();
    // A search for each site would take its time with thousands of both.
    const firstOf = new Int32Array(model.sites.length).fill(-1);
    for (let index = byBirth ? instances.count - 1 : -1; index >= 0; index--) firstOf[instances.site[index]] = index;
    const birthOf = (key: number): Frame[] => {
        let instance = model.keyInstance[key];
        const site = model.keySite[key];
        if (instance < 0 && site >= 0) instance = firstOf[site];
        if (instance < 0) return [];
        const stack = instances.stack[instance];
        let list = stackOf.get(stack);
        if (!list) stackOf.set(stack, (list = model.stackFrames(stack).reverse()));
        return list;
    };
    for (let group = 0; group < size; group++) {
        if (value[group] <= 0) continue;
        const whole = byBirth ? birthOf(group) : model.codes[group];
        const list = whole.slice(0, DEEPEST);
        if (whole.length > DEEPEST) deeper += value[group];
        let at = root;
        const visit = (next: Block): void => {
            next.value += value[group];
            next.known += known[group];
            next.remote += remote[group];
            at = next;
        };
        visit(root);
        for (const frame of list) visit(child(at, frame.fn, () => block(model.functions[frame.fn].name, frame.fn, -1, model.framePlace(frame))));
        if (byBirth) {
            const site = model.keySite[group];
            const name = site >= 0 ? model.sites[site].name : model.keyKind[group] === 2 ? "other objects" : "(no known object)";
            const key = site >= 0 ? -3 - site : -model.keyKind[group] / 4;
            visit(child(at, key, () => block(name, -1, site, site >= 0 ? model.sites[site].kind : "")));
        } else if (list.length === 0) visit(child(at, -1, () => block(model.isCells ? "other code" : "(unknown)", -1, -1, "")));
    }
    return { root, deeper };
}

/** The block below with this key; made where there is none yet. */
function child(of: Block, key: number, make: () => Block): Block {
    let next = of.children.get(key);
    if (!next) of.children.set(key, (next = make()));
    return next;
}

/** The blocks along the zoom, as far as they are there. */
function descend(root: Block, zoom: readonly number[]): Block[] {
    const path = [root];
    for (const key of zoom) {
        const next = path[path.length - 1].children.get(key);
        if (!next) break;
        path.push(next);
    }
    return path;
}

function drawTrail(
    { model, store }: Context,
    trail: HTMLElement,
    path: readonly Block[],
    zoom: readonly number[],
    zoomTo: (to: number[]) => void,
): void {
    const steps = path.slice(1);
    const last = path[path.length - 1];
    const chosenFn = store.filter.fn;
    replace(
        trail,
        steps.length > 0 && h("button", { type: "button", class: "quiet", click: () => zoomTo([]) }, "Zoom out"),
        ...steps.slice(-4).map((step, index) =>
            h(
                "button",
                {
                    type: "button",
                    class: "link name",
                    title: step.name,
                    click: () => zoomTo(zoom.slice(0, Math.max(steps.length - 4, 0) + index + 1)),
                },
                step.name,
            ),
        ),
        last.fn >= 0 &&
            h(
                "button",
                { type: "button", class: "quiet", click: () => store.toggle({ fn: last.fn }) },
                chosenFn === last.fn ? "Remove this filter" : "Filter by this function",
            ),
        last.site >= 0 &&
            model.foldedSites[last.site] === 0 &&
            h("button", { type: "button", class: "quiet", click: () => store.toggle({ site: last.site, instance: -1 }) }, "Filter by this object"),
        steps.length === 0 &&
            chosenFn >= 0 &&
            h("span", { class: "faint" }, `Filtered by ${model.functions[chosenFn].name}; this view shows all code.`),
    );
}

function draw(stage: HTMLElement, path: readonly Block[], zoom: readonly number[], zoomTo: (to: number[]) => void, onlyRemote: boolean): void {
    const root = path[path.length - 1];
    const blocks: HTMLElement[] = [];
    let deepest = 0;
    const place = (at: Block, keys: readonly number[], depth: number, left: number, width: number): void => {
        deepest = Math.max(deepest, depth);
        const share = root.value > 0 ? at.value / root.value : 0;
        const remote = far(at);
        // Where everything is remote, distance would paint all blocks alike: there, colours only tell neighbours apart.
        const [background, color] = onlyRemote ? palette.warm(at.name) : [palette.distance(remote), palette.inkOnDistance(remote)];
        const hint =
            `${at.name}${at.place ? ` (${at.place})` : ""}: ${count(Math.round(at.value))} ${said.many}, ${percent(share)} of what is ` +
            `shown; ${Number.isNaN(remote) ? "no home is known" : `${percent(remote)} remote`}`;
        blocks.push(
            h(
                "button",
                {
                    type: "button",
                    class: "block",
                    title: hint,
                    "aria-label": hint,
                    role: "treeitem",
                    "aria-level": depth + 1,
                    // One stop for the tab key; arrow keys lead on.
                    tabindex: blocks.length === 0 ? 0 : -1,
                    "data-depth": depth,
                    style: { left: `${left * 100}%`, width: `${width * 100}%`, top: `${depth * LINE}px`, background, color },
                    click: () => zoomTo([...keys]),
                },
                width > 0.02 ? at.name.slice(0, 200) : "",
            ),
        );
        let x = left;
        const ordered = [...at.children].sort((a, b) => b[1].value - a[1].value);
        for (const [key, next] of ordered) {
            const wide = (width * next.value) / at.value;
            if (wide >= NARROWEST) place(next, [...keys, key], depth + 1, x, wide);
            x += wide;
        }
    };
    place(root, zoom.slice(0, path.length - 1), 0, 0, 1);
    stage.style.height = `${(deepest + 1) * LINE + 2}px`;
    replace(stage, ...blocks);
}

/** The tree as lines, widest first at every level. */
function list(root: Block, all: number): (string | number)[][] {
    const rows: (string | number)[][] = [];
    const visit = (at: Block, depth: number): void => {
        if (rows.length >= 200 || at.value < all * NARROWEST) return;
        rows.push([at.name, at.place, depth, percent(all > 0 ? at.value / all : 0), percent(far(at))]);
        [...at.children.values()].sort((a, b) => b.value - a.value).forEach((next) => visit(next, depth + 1));
    };
    visit(root, 0);
    return rows;
}
