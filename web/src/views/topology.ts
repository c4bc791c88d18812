// The machine as it is built: nodes with their CPUs and memory controllers, directed links sized and coloured by what they carry.

import { defined } from "../definitions";
import { behind, h, refresh, replace, svg } from "../dom";
import { total } from "../estimate";
import { bytes, count, percent, shortPercent } from "../format";
import * as palette from "../palette";
import { knownHomes, leftOut, ofKnown, whyUnknown } from "../homes";
import type { Endpoint, Machine } from "../payload";
import type { Selection } from "../selection";
import type { Context, View } from "../view";
import { said, sentence } from "../words";

type Point = readonly [number, number];

const ROUTER: Point = [104, 28];
/** Distance of a link's lane from the line between the centres: the other direction has the lane beside it. */
const LANE = 11;
const THIN = 1.5;
const THICK = 15;
const MARGIN = 26;

interface Load {
    from: Endpoint;
    to: Endpoint;
    accesses: number;
    bandwidth: number | null;
    kind: string;
}

/** More nodes than this do not fit a picture with room for every link's figure. */
const MANY = 16;
/** More nodes than this have too many pairs for an arrow each, where the links are not known. */
const PAIRED = 8;
/** Links that are drawn then, and that get a label. */
const BUSIEST = 24;
const LABELLED = 6;

/** What stands beside a node's share: short where `<0.1 %` leaves no room. */
function servedNote(served: number): string {
    return shortPercent(served).length > 5 ? "served" : "served here";
}

/** Many nodes: small cards in rows, whatever the machine's own layout. */
function compact(machine: Machine): Machine {
    const [width, height, gapX, gapY] = [92, 62, 44, 34];
    const columns = Math.ceil(Math.sqrt(machine.nodes.length));
    const rows = Math.ceil(machine.nodes.length / columns);
    const at = (index: number): { x: number; y: number } => ({
        x: (index % columns) * (width + gapX) + width / 2,
        y: Math.floor(index / columns) * (height + gapY) + height / 2,
    });
    const middle = (router: number): { x: number; y: number } =>
        at(Math.floor(((router + 0.5) * machine.nodes.length) / Math.max(machine.routers.length, 1)));
    return {
        ...machine,
        card_width: width,
        card_height: height,
        width: columns * (width + gapX) - gapX,
        height: rows * (height + gapY) - gapY,
        nodes: machine.nodes.map((node, index) => ({ ...node, ...at(index) })),
        routers: machine.routers.map((router, index) => ({ ...router, x: middle(index).x, y: middle(index).y + height / 2 + gapY / 2 })),
    };
}

/** Accesses on every link: each pair's, spread evenly over its routes. Where no link is known, pairs themselves. */
function loads(machine: Machine, nodes: readonly number[], cells: Float64Array, position: (node: number) => number): Load[] {
    const n = nodes.length;
    if (machine.links.length === 0) {
        const pairs = machine.nodes.flatMap((home) => machine.nodes.filter((from) => from.id !== home.id).map((from) => [home.id, from.id]));
        const all = pairs.map(([home, from]) => ({
            from: { node: home },
            to: { node: from },
            accesses: cells[position(from) * n + position(home)] ?? 0,
            bandwidth: null,
            kind: "pair",
        }));
        return machine.nodes.length > PAIRED ? all.filter((pair) => pair.accesses > 0) : all;
    }
    const sums = new Float64Array(machine.links.length);
    for (const [home, from, paths] of machine.routes) {
        const accesses = cells[position(from) * n + position(home)] ?? 0;
        if (accesses > 0) for (const path of paths) for (const link of path) sums[link] += accesses / paths.length;
    }
    return machine.links.map((link, index) => ({
        from: link.from,
        to: link.to,
        accesses: sums[index],
        bandwidth: link.bandwidth_bytes_per_s,
        kind: link.kind,
    }));
}

export function topology(context: Context): View {
    const { model, store } = context;
    const { head } = model;
    const machine = head.machine && head.machine.nodes.length > MANY ? compact(head.machine) : head.machine;
    const picture = h("div", { class: "machine" });
    const legend = h("div", { class: "legend" });
    let rows: (string | number)[][] = [];
    const demand = said.areFaults
        ? ""
        : ". Demand: share of a link's peak bandwidth over program time, for the data of accesses alone (64 bytes each); above 100 %, the link would " +
          "slow the program down";
    const table = behind(`What nodes serve and links carry${demand}`, ["What", sentence(said.many), "Share", "Demand"], () => rows);
    const element = h(
        "section",
        { class: "card topology", "aria-label": "The machine and its traffic" },
        h("h2", {}, defined("Where the traffic goes", "Link load")),
        picture,
        legend,
        table,
    );
    if (!machine) {
        replace(
            picture,
            h("p", { class: "nothing" }, "The trace has no machine model, so there is nothing to draw. The matrix of nodes is below."),
        );
        return { element, render: () => undefined };
    }
    const render = (selection: Selection): void => {
        const cells = selection.matrix(0);
        const isFiltered = store.isFiltered();
        const known = knownHomes(context, selection, isFiltered);
        const why = whyUnknown(context, isFiltered, known);
        table.hidden = why !== "";
        if (why !== "") {
            replace(picture, h("p", { class: "nothing" }, `${why}, so no traffic is shown.`));
            replace(legend);
            return;
        }
        const values = isFiltered ? cells.weight : Float64Array.from(head.matrix.accesses.flat().map((estimate) => estimate[0]));
        const scene = new Scene(context, machine, values, timeCovered(context), ofKnown(known));
        replace(picture, scene.draw());
        rows = scene.table();
        refresh(table);
        drawLegend(legend, isFiltered && !total(cells.all())[0], scene, known);
    };
    return { element, render };
}

/** Time in which what passes the filters was counted, ns: slices of time that overlap the chosen range count as a whole. */
function timeCovered({ model, store }: Context): number {
    const { time } = store.filter;
    const { start_ns: start, duration_ns: duration } = model.head;
    if (!time) return duration;
    const whole = model.isCells ? model.binNs : 1;
    const [from, to] = [Math.floor((time[0] - start) / whole) * whole, Math.ceil((time[1] - start) / whole) * whole];
    return Math.min(to, duration) - Math.max(from, 0);
}

function drawLegend(legend: HTMLElement, isEmpty: boolean, scene: Scene, known: number): void {
    const unrouted = scene.unrouted();
    const steps = Array.from({ length: 24 }, (_, i) => h("span", { style: { background: palette.load(i / 23) } }));
    replace(
        legend,
        h("span", {}, "0"),
        h("span", { class: "ramp", "aria-hidden": "true" }, ...steps),
        h("span", {}, `100 % of ${ofKnown(known)}`),
        leftOut(known) !== "" && h("span", { class: "warning" }, leftOut(known)),
        unrouted > 1e-9 &&
            h("span", { class: "warning" }, `${percent(unrouted)} of the ${ofKnown(known)} are between nodes without a known route: they are on no arrow.`),
        ...scene.notes().map((note) => h("span", { class: "faint" }, note)),
        h(
            "span",
            { class: "faint" },
            isEmpty ? `No ${said.one} passes the filters.` : "Arrows lead from the data's home to the thread. Choose a node's memory or CPUs to filter.",
        ),
    );
}

/** One drawing. */
class Scene {
    private readonly all: number;
    private readonly loads: Load[];
    private readonly n: number;

    constructor(
        private readonly context: Context,
        private readonly machine: Machine,
        private readonly cells: Float64Array,
        private readonly timeNs: number,
        /** What shares are of. */
        private readonly of: string,
    ) {
        const { model } = context;
        this.n = model.head.nodes.length;
        this.all = cells.reduce((a, b) => a + b, 0);
        this.loads = loads(machine, model.head.nodes, cells, (node) => model.position(node));
    }

    /** NaN where there are none. */
    private share(accesses: number): number {
        return this.all > 0 ? accesses / this.all : NaN;
    }

    private served(position: number): number {
        return this.share(this.servedBy(position));
    }

    private servedBy(position: number): number {
        let sum = 0;
        for (let from = 0; from < this.n; from++) sum += this.cells[from * this.n + position];
        return sum;
    }

    private made(position: number): number {
        let sum = 0;
        for (let home = 0; home < this.n; home++) sum += this.cells[position * this.n + home];
        return this.share(sum);
    }

    private local(position: number): number {
        return this.share(this.cells[position * this.n + position]);
    }

    /** Share of accesses between nodes that the machine's description joins by no route: they are on no arrow. */
    unrouted(): number {
        if (this.arePairs()) return 0;
        const { model } = this.context;
        let rest = 0;
        for (let cell = 0; cell < this.cells.length; cell++) if (Math.floor(cell / this.n) !== cell % this.n) rest += this.cells[cell];
        for (const [home, from, paths] of this.machine.routes)
            if (paths.length > 0) rest -= this.cells[model.position(from) * this.n + model.position(home)] ?? 0;
        return this.share(Math.max(rest, 0));
    }

    private arePairs(): boolean {
        return this.machine.links.length === 0;
    }

    /** Whether only the busiest arrows are drawn. */
    private isPart(): boolean {
        return this.machine.nodes.length > (this.arePairs() ? PAIRED : MANY);
    }

    /** What arrows stand for where it is not the machine's links, and which are drawn. */
    notes(): string[] {
        const notes: string[] = [];
        const [pairs, count] = [this.arePairs(), this.loads.length];
        if (pairs && this.machine.nodes.length > 1) notes.push("How the nodes are connected is not known: an arrow is a pair of nodes.");
        if (this.isPart() && count > BUSIEST) {
            notes.push(`Of ${count} ${pairs ? "pairs with traffic" : "links"} the ${BUSIEST} busiest are drawn; the table has all.`);
        }
        return notes;
    }

    draw(): SVGSVGElement {
        const { machine } = this;
        const [width, height] = [machine.width + 2 * MARGIN, machine.height + 2 * MARGIN];
        const isMany = machine.nodes.length > MANY;
        const busiest = [...this.loads].sort((a, b) => b.accesses - a.accesses);
        const links = (this.isPart() ? busiest.slice(0, BUSIEST).filter((load) => load.accesses > 0) : this.loads).map((load) => this.arrow(load));
        const cards = machine.nodes.map((_, index) => this.card(index));
        const routers = machine.routers.map((router) =>
            svg(
                "g",
                { class: "router" },
                svg("rect", {
                    x: router.x - ROUTER[0] / 2 + MARGIN,
                    y: router.y - ROUTER[1] / 2 + MARGIN,
                    width: ROUTER[0],
                    height: ROUTER[1],
                    rx: ROUTER[1] / 2,
                }),
                svg("text", { x: router.x + MARGIN, y: router.y + MARGIN + 4, "text-anchor": "middle" }, router.name.slice(0, 15)),
            ),
        );
        const title =
            `${machine.name}: ` +
            `${machine.nodes.map((node) => `node ${node.id} serves ${percent(this.served(this.context.model.position(node.id)))}`).join(", ")}`;
        const picture = svg(
            "svg",
            { viewBox: `0 0 ${width} ${height}`, class: "topology-picture", role: "group", "aria-label": title },
            ...links.map((link) => link.line),
            ...cards,
            ...routers,
            ...(isMany ? links.slice(0, LABELLED) : links).map((link) => link.label),
        );
        picture.style.maxWidth = `${Math.max(width * 1.15, 420)}px`;
        return picture;
    }

    private centre(end: Endpoint): Point {
        const place = "node" in end ? this.machine.nodes.find((node) => node.id === end.node) : this.machine.routers[end.router];
        return place ? [place.x + MARGIN, place.y + MARGIN] : [0, 0];
    }

    private half(end: Endpoint): Point {
        return "node" in end ? [this.machine.card_width / 2, this.machine.card_height / 2] : [ROUTER[0] / 2, ROUTER[1] / 2];
    }

    private name(end: Endpoint): string {
        return "node" in end ? `node ${end.node}` : (this.machine.routers[end.router]?.name ?? "router");
    }

    private utilisation(load: Load): number | null {
        // How much data page faults move is not known.
        return load.bandwidth && this.timeNs > 0 && !said.areFaults ? (load.accesses * 64) / (this.timeNs / 1e9) / load.bandwidth : null;
    }

    private arrow(load: Load): { line: SVGElement; label: SVGElement } {
        const nothing = { line: svg("g"), label: svg("g") };
        const [a, b] = [this.centre(load.from), this.centre(load.to)];
        const length = Math.hypot(b[0] - a[0], b[1] - a[1]);
        if (length < 1) return nothing;
        const along: Point = [(b[0] - a[0]) / length, (b[1] - a[1]) / length];
        const aside: Point = [-along[1] * LANE, along[0] * LANE];
        const leave = reach(this.half(load.from), along, aside) + 3;
        const arrive = reach(this.half(load.to), [-along[0], -along[1]], aside) + 3;
        if (leave + arrive + 10 > length) return nothing;
        const share = this.share(load.accesses);
        const start: Point = [a[0] + aside[0] + along[0] * leave, a[1] + aside[1] + along[1] * leave];
        const end: Point = [b[0] + aside[0] - along[0] * arrive, b[1] + aside[1] - along[1] * arrive];
        const thick = Math.sqrt(share > 0 ? Math.min(share, 1) : 0);
        const width = THIN + (THICK - THIN) * thick;
        const headLength = width * 0.9 + 5;
        const neck: Point = [end[0] - along[0] * headLength, end[1] - along[1] * headLength];
        const side: Point = [-along[1] * headLength * 0.75, along[0] * headLength * 0.75];
        const colour = share > 0 ? palette.load(0.15 + 0.85 * share) : palette.themed("--line");
        const corners = [end, [neck[0] + side[0], neck[1] + side[1]], [neck[0] - side[0], neck[1] - side[1]]]
            .map((p) => p.map((v) => v.toFixed(1)).join(","))
            .join(" ");
        const use = this.utilisation(load);
        const hint =
            `${this.name(load.from)} to ${this.name(load.to)}: ${count(load.accesses)} ${said.many} (${percent(share)} of ${this.of})` +
            (said.areFaults ? "" : `, ${bytes(load.accesses * 64)} of data`) +
            (use === null ? "" : `; demand: ${percent(use)} of its peak bandwidth over program time`);
        const line = svg(
            "g",
            { class: "wire" },
            svg("title", {}, hint),
            svg("line", { x1: start[0], y1: start[1], x2: neck[0], y2: neck[1], stroke: colour, "stroke-width": width.toFixed(1) }),
            svg("polygon", { points: corners, fill: colour }),
        );
        // A third of the way, where labels of crossing links and of the other direction are elsewhere.
        const away = 13 + THICK * 0.3 * thick;
        const [x, y] = [start[0] + (end[0] - start[0]) * 0.36 - along[1] * away, start[1] + (end[1] - start[1]) * 0.36 + along[0] * away];
        const anchor = Math.abs(along[1]) < 0.4 ? "middle" : along[1] > 0 ? "end" : "start";
        const label = svg(
            "text",
            { x: x.toFixed(1), y: (y + 4).toFixed(1), "text-anchor": anchor, class: share > 0 ? "wire-label" : "wire-label faint" },
            svg("title", {}, hint),
            shortPercent(share),
        );
        return { line, label };
    }

    /** A node: its memory controller above, coloured by what it serves; its CPUs below. */
    private card(index: number): SVGElement {
        const { store, model } = this.context;
        const node = this.machine.nodes[index];
        const position = model.position(node.id);
        const [w, half] = [this.machine.card_width, this.machine.card_height / 2];
        const [x, y] = [node.x - w / 2 + MARGIN, node.y - half + MARGIN];
        const [served, made] = [this.served(position), this.made(position)];
        const { filter } = store;
        const isSmall = this.machine.nodes.length > MANY;
        const own = made > 0 ? `${shortPercent(this.local(position) / made)} of these local` : "";
        const size = node.memory_bytes > 0 ? bytes(node.memory_bytes) : "no memory";
        const memory = part({
            x,
            y,
            width: w,
            height: half + 6,
            fill: palette.load(served),
            ink: palette.inkOnLoad(served),
            isChosen: filter.home === position,
            label: `Memory of node ${node.id} (${size}${node.memory_kind ? ` of ${node.memory_kind}` : ""}) serves ${percent(served)} of the ${this.of}`,
            choose: () => store.toggle({ home: position }),
            lines: isSmall
                ? [
                      [`Node ${node.id}`, 8, 15, "node-name"],
                      [shortPercent(served), 8, 31, "node-name"],
                  ]
                : [
                      [`Node ${node.id}`, 12, 18, "node-name"],
                      [shortPercent(served), 12, 43, "node-figure"],
                      [size, w - 12, 18, "node-note"],
                      [node.memory_bytes > 0 ? servedNote(served) : "", w - 12, 43, "node-note"],
                  ],
        });
        const cpus = part({
            x,
            y: y + half + 6,
            width: w,
            height: half - 6,
            fill: palette.themed("--panel"),
            ink: palette.themed("--ink"),
            isChosen: filter.from === position,
            label: `CPUs of node ${node.id} make ${percent(made)} of the ${this.of}${own && `, ${own}`}`,
            choose: () => store.toggle({ from: position }),
            lines: isSmall
                ? [[node.cpus > 0 ? `make ${shortPercent(made)}` : "no CPUs", 8, 17, "node-cpus"]]
                : [
                      [node.cpus > 0 ? `${node.cpus} CPUs make ${shortPercent(made)}` : "no CPUs", 12, 18, "node-cpus"],
                      [own, 12, 34, "node-cpus"],
                  ],
        });
        const colour = svg("rect", { x, y: y + half + 6, width: 4, height: half - 6, fill: palette.node(position) });
        return svg("g", { class: "node" }, memory, cpus, colour, svg("rect", { x, y, width: w, height: half * 2, rx: 8, class: "outline" }));
    }

    table(): (string | number)[][] {
        const { model } = this.context;
        const nodes = this.machine.nodes.map((node) => {
            const served = this.servedBy(model.position(node.id));
            return [`memory of node ${node.id}`, count(Math.round(served)), percent(this.share(served)), ""];
        });
        const links = this.loads.map((load) => {
            const use = this.utilisation(load);
            return [
                `${this.name(load.from)} to ${this.name(load.to)}`,
                count(Math.round(load.accesses)),
                percent(this.share(load.accesses)),
                use === null ? "" : percent(use),
            ];
        });
        return [...nodes, ...links];
    }
}

interface Part {
    x: number;
    y: number;
    width: number;
    height: number;
    fill: string;
    ink: string;
    isChosen: boolean;
    label: string;
    choose: () => void;
    lines: [text: string, dx: number, dy: number, kind: string][];
}

/** A part of a card that can be chosen, by pointer or keyboard. */
function part(what: Part): SVGElement {
    const press = (event: KeyboardEvent): void => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        what.choose();
    };
    const texts = what.lines
        .filter(([text]) => text !== "")
        .map(([text, dx, dy, kind]) =>
            svg("text", { x: what.x + dx, y: what.y + dy, class: kind, fill: what.ink, "text-anchor": kind === "node-note" ? "end" : "start" }, text),
        );
    return svg(
        "g",
        {
            class: what.isChosen ? "part chosen" : "part",
            tabindex: 0,
            role: "button",
            "aria-pressed": what.isChosen ? "true" : "false",
            "aria-label": what.label,
            click: what.choose,
            keydown: press,
        },
        svg("title", {}, what.label),
        svg("rect", { x: what.x, y: what.y, width: what.width, height: what.height, fill: what.fill, rx: 8 }),
        ...texts,
    );
}

/** How far from its (shifted) centre a ray leaves a box with these half sides. */
function reach(half: Point, along: Point, aside: Point): number {
    const one = (size: number, direction: number, shift: number): number =>
        Math.abs(direction) < 1e-9 ? Infinity : Math.max((size * Math.sign(direction) - shift) / direction, 0);
    return Math.min(one(half[0], along[0], aside[0]), one(half[1], along[1], aside[1]));
}
