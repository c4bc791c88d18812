// An object's pages over time: where each stretch of them is, and who accesses it.

import { behind, h, prepare, refresh, replace } from "../dom";
import { bytes, count, timeNs } from "../format";
import * as palette from "../palette";
import { overlaps, wholeSlices, type Selection } from "../selection";
import type { Context } from "../view";
import { said, sentence } from "../words";

const PAGE_BYTES = 4096;
const STRETCHES = 64;
const SLICES = 60;
const HEIGHT = 200;

/** Accesses per stretch, slice and node. */
interface Map {
    stretches: number;
    slices: number;
    pagesEach: number;
    sliceNs: number;
    home: Float64Array;
    from: Float64Array;
    /** Per stretch and slice, those with unknown nodes, too. */
    any: Float64Array;
    all: number;
}

export class PageMaps {
    readonly element: HTMLElement;
    private readonly home = h("canvas", { class: "pages", role: "img" });
    private readonly from = h("canvas", { class: "pages", role: "img" });
    private readonly note = h("p", { class: "faint" });
    private readonly legend = h("div", { class: "keys" });
    private readonly table: HTMLElement;
    private map: Map | null = null;

    constructor(private readonly context: Context) {
        this.table = behind("Ranges of pages", ["Pages", sentence(said.many), "Home node", "Accessed from"], () => this.rows());
        this.element = h(
            "div",
            { class: "page-maps" },
            h(
                "div",
                { class: "pair" },
                h("figure", {}, h("figcaption", {}, "Where its pages are"), this.home),
                h("figure", {}, h("figcaption", {}, said.areFaults ? "Nodes that fault on them" : "Nodes that access them"), this.from),
            ),
            this.legend,
            this.note,
            this.table,
        );
        new ResizeObserver(() => this.draw()).observe(this.home);
    }

    /** Shows one instance; -1 where there is not just one. */
    show(selection: Selection, instance: number): void {
        this.map = instance < 0 ? null : this.context.model.isCells ? this.fromCells(selection, instance) : this.fromRows(selection, instance);
        this.note.textContent = this.words(instance);
        this.note.hidden = this.note.textContent === "";
        for (const part of [this.home, this.from]) (part.closest(".pair") as HTMLElement).hidden = this.map === null;
        const { head } = this.context.model;
        replace(
            this.legend,
            ...(this.map
                ? [...head.nodes.keys(), ...(hasUnknown(this.map) ? [-1] : [])].map((node) =>
                      h("span", { class: "key" }, h("i", { style: { background: palette.node(node) } }), this.context.model.nodeName(node)),
                  )
                : []),
        );
        this.draw();
        this.table.hidden = this.map === null;
        refresh(this.table);
    }

    private words(instance: number): string {
        const { model, store } = this.context;
        if (instance < 0) return "This is a site with several objects: list them one by one, and choose one to see its pages.";
        if (this.map === null)
            return model.isCells && model.columns.ints("page_instance").indexOf(instance) < 0
                ? `This page holds page maps only of the objects with most ${said.many}, and this object is not among them.`
                : `No ${said.one} to it passes the filters.`;
        const pages =
            `Each cell is ${count(this.map.pagesEach)} ${this.map.pagesEach === 1 ? "page" : "pages"} of ${bytes(PAGE_BYTES)}, ` +
            `${timeNs(this.map.sliceNs)} wide; the node with most ${said.many} colours it. Low addresses are at the top.`;
        const limit =
            model.isCells && (store.filter.thread >= 0 || store.filter.fn >= 0 || store.filter.only !== "")
                ? " Filters by thread, function and direction do not apply to this view."
                : "";
        const slices = model.isCells ? wholeSlices(model.head, store.filter.time, model.head.grain.page_bin_ns) : "";
        return pages + (slices ? ` This page holds page maps ${slices}.` : "") + limit;
    }

    private empty(instance: number, pagesEach: number, sliceNs: number): Map {
        const { model } = this.context;
        const n = model.head.nodes.length;
        const stretches = Math.max(1, Math.ceil(Math.ceil(model.instances.bytes[instance] / PAGE_BYTES) / pagesEach));
        const slices = Math.max(1, Math.ceil(model.head.duration_ns / sliceNs));
        const size = stretches * slices * n;
        return {
            stretches,
            slices,
            pagesEach,
            sliceNs,
            home: new Float64Array(size),
            from: new Float64Array(size),
            any: new Float64Array(stretches * slices),
            all: 0,
        };
    }

    private add(map: Map, page: number, time: number, from: number, home: number, weight: number): void {
        const { head } = this.context.model;
        const n = head.nodes.length;
        const stretch = Math.min(Math.floor(page / map.pagesEach), map.stretches - 1);
        const slice = Math.min(Math.max(Math.floor((time - head.start_ns) / map.sliceNs), 0), map.slices - 1);
        const cell = (stretch * map.slices + slice) * n;
        if (home >= 0) map.home[cell + home] += weight;
        if (from >= 0) map.from[cell + from] += weight;
        map.any[cell / n] += weight;
        map.all += weight;
    }

    private fromRows(selection: Selection, instance: number): Map | null {
        const { rows, instances } = this.context.model;
        const pages = Math.ceil(instances.bytes[instance] / PAGE_BYTES);
        const slices = Math.min(SLICES, this.context.model.bins);
        const map = this.empty(instance, Math.max(1, Math.ceil(pages / STRETCHES)), Math.max(1, this.context.model.head.duration_ns / slices));
        selection.each(0, (i) => {
            if (rows.instance[i] === instance && rows.page[i] >= 0)
                this.add(map, rows.page[i], rows.time[i], rows.from[i], rows.home[i], rows.weight[i]);
        });
        return map.all > 0 ? map : null;
    }

    private fromCells(selection: Selection, instance: number): Map | null {
        const { model } = this.context;
        const column = (name: string): Int32Array => model.columns.ints(`page_${name}`);
        const [of, first, count, bin, from, home] = [
            column("instance"),
            column("first"),
            column("count"),
            column("bin"),
            column("from"),
            column("home"),
        ];
        const weight = model.columns.numbers("page_weight");
        const start = of.indexOf(instance);
        if (start < 0) return null;
        // The slices in which the accesses were summed up: others would leave gaps.
        const width = model.head.grain.page_bin_ns;
        const map = this.empty(instance, count[start], width);
        const { filter } = selection;
        for (let i = start; i < of.length && of[i] === instance; i++) {
            const time = model.head.start_ns + bin[i] * model.head.grain.bin_ns;
            const passes =
                (filter.from < 0 || filter.from === from[i]) &&
                (filter.home < 0 || filter.home === home[i]) &&
                overlaps(filter.time, time, width);
            if (passes) this.add(map, first[i], time, from[i], home[i], weight[i]);
        }
        return map.all > 0 ? map : null;
    }

    private draw(): void {
        const { map } = this;
        if (!map || this.home.clientWidth === 0) return;
        this.paint(this.home, map, map.home, "Home nodes of its pages over time");
        this.paint(this.from, map, map.from, "Nodes that access its pages over time");
    }

    private paint(canvas: HTMLCanvasElement, map: Map, values: Float64Array, label: string): void {
        const n = this.context.model.head.nodes.length;
        const width = canvas.clientWidth;
        const height = Math.min(HEIGHT, Math.max(map.stretches * 12, 24));
        const context = prepare(canvas, width, height);
        context.fillStyle = palette.themed("--well");
        context.fillRect(0, 0, width, height);
        const [dx, dy] = [width / map.slices, height / map.stretches];
        for (let cell = 0; cell < map.stretches * map.slices; cell++) {
            if (map.any[cell] <= 0) continue;
            // Grey where no node is known.
            context.fillStyle = palette.node(greatest(values, cell * n, n));
            context.fillRect(
                (cell % map.slices) * dx,
                Math.floor(cell / map.slices) * dy,
                Math.max(dx - (dx > 5 ? 0.5 : 0), 1),
                Math.max(dy - (dy > 5 ? 0.5 : 0), 1),
            );
        }
        canvas.setAttribute("aria-label", label);
    }

    private rows(): (string | number)[][] {
        const { map } = this;
        if (!map) return [];
        const { model } = this.context;
        const n = model.head.nodes.length;
        return Array.from({ length: map.stretches }, (_, stretch) => {
            const sum = (values: Float64Array): Float64Array => {
                const nodes = new Float64Array(n);
                for (let slice = 0; slice < map.slices; slice++)
                    for (let node = 0; node < n; node++) nodes[node] += values[(stretch * map.slices + slice) * n + node];
                return nodes;
            };
            const [home, from] = [sum(map.home), sum(map.from)];
            const first = stretch * map.pagesEach;
            const name = (nodes: Float64Array): string =>
                Array.from(nodes, (value, node) => ({ value, node }))
                    .filter((part) => part.value > 0)
                    .sort((a, b) => b.value - a.value)
                    .slice(0, 4)
                    .map((part) => model.nodeName(part.node))
                    .join(", ") || "–";
            const all = map.any.subarray(stretch * map.slices, (stretch + 1) * map.slices).reduce((a, b) => a + b, 0);
            return [`${first} to ${first + map.pagesEach - 1}`, count(Math.round(all)), name(home), name(from)];
        });
    }
}

function hasUnknown({ any, home, from }: Map): boolean {
    const n = home.length / any.length;
    return any.some((weight, cell) => weight > 0 && (greatest(home, cell * n, n) < 0 || greatest(from, cell * n, n) < 0));
}

function greatest(values: Float64Array, start: number, length: number): number {
    let best = -1;
    for (let i = 0; i < length; i++) if (values[start + i] > 0 && (best < 0 || values[start + i] > values[start + best])) best = i;
    return best;
}
