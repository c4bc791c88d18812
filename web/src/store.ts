// What the reader chose, kept in the URL's fragment so that a link points at a finding, and who must know of it.

import type { Model } from "./model";

export type Only = "" | "remote" | "local" | "reads" | "writes";

/** Conditions on accesses; -1 (and null, and "") let all pass. Nodes are positions, sites indices of the model. */
export interface Filter {
    time: readonly [start: number, end: number] | null;
    from: number;
    home: number;
    thread: number;
    site: number;
    instance: number;
    fn: number;
    only: Only;
}

export const NOTHING: Filter = { time: null, from: -1, home: -1, thread: -1, site: -1, instance: -1, fn: -1, only: "" };

const ONLY: readonly string[] = ["remote", "local", "reads", "writes"];

export class Store {
    filter: Filter = NOTHING;
    /** What the link names and no filter can show, in words. */
    refused: string[] = [];
    private options = new Map<string, string>();
    private readonly listeners: (() => void)[] = [];

    constructor(private readonly model: Model) {
        this.read();
        window.addEventListener("hashchange", () => {
            if (location.hash.slice(1) === this.fragment()) return;
            this.read();
            this.tell();
        });
    }

    onChange(listener: () => void): void {
        this.listeners.push(listener);
    }

    /** Changes some conditions; the rest stay. */
    set(change: Partial<Filter>): void {
        this.filter = { ...this.filter, ...change };
        this.refused = [];
        this.write();
        this.tell();
    }

    /** Sets the conditions, or lifts them if they are just these. */
    toggle(change: Partial<Filter>): void {
        const keys = Object.keys(change) as (keyof Filter)[];
        const isSet = keys.every((key) => this.filter[key] === change[key]);
        this.set(isSet ? Object.fromEntries(keys.map((key) => [key, NOTHING[key]])) : change);
    }

    clear(): void {
        this.set(NOTHING);
    }

    isFiltered(): boolean {
        return this.conditions().length > 0;
    }

    /** Names of the conditions that are set, in a fixed order. */
    conditions(): (keyof Filter)[] {
        return (Object.keys(NOTHING) as (keyof Filter)[]).filter((key) => this.filter[key] !== NOTHING[key]);
    }

    /** How a view is set, such as its order. */
    option(name: string, otherwise: string): string {
        return this.options.get(name) ?? otherwise;
    }

    setOption(name: string, value: string, otherwise: string): void {
        if (value === otherwise) this.options.delete(name);
        else this.options.set(name, value);
        this.write();
        this.tell();
    }

    private tell(): void {
        for (const listener of this.listeners) listener();
    }

    private write(): void {
        // Replaced, not pushed: the way back leads out of the page, not through every click.
        history.replaceState(null, "", `#${this.fragment()}`);
    }

    private fragment(): string {
        const { model, filter } = this;
        const parts = new URLSearchParams();
        if (filter.time) parts.set("time", filter.time.map((ns) => String(Math.round(ns))).join("-"));
        if (filter.from >= 0) parts.set("from", String(model.head.nodes[filter.from]));
        if (filter.home >= 0) parts.set("home", String(model.head.nodes[filter.home]));
        if (filter.thread >= 0) parts.set("thread", String(filter.thread));
        if (filter.site >= 0) parts.set("site", `S${model.sites[filter.site].id}`);
        if (filter.instance >= 0) parts.set("object", String(model.instances.id[filter.instance]));
        if (filter.fn >= 0) parts.set("function", model.functionKey(filter.fn));
        if (filter.only !== "") parts.set("only", filter.only);
        for (const [name, value] of this.options) parts.set(name, value);
        return parts.toString();
    }

    /** Takes the state from the fragment. What makes no sense (any more) is left out. */
    private read(): void {
        const { model } = this;
        const parts = new URLSearchParams(location.hash.slice(1));
        const whole = (name: string, below: number): number => {
            const text = parts.get(name) ?? "";
            return /^\d+$/.test(text) && Number(text) < below ? Number(text) : -1;
        };
        const node = (name: string): number => model.head.nodes.indexOf(whole(name, 2 ** 31));
        const time = /^(\d+)-(\d+)$/.exec(parts.get("time") ?? "");
        const range = time ? ([Number(time[1]), Number(time[2])] as const) : null;
        const site = /^S(\d+)$/.exec(parts.get("site") ?? "");
        const object = whole("object", 2 ** 31);
        const only = parts.get("only") ?? "";
        this.filter = {
            time: range && range[0] < range[1] ? range : null,
            from: node("from"),
            home: node("home"),
            thread: whole("thread", model.head.threads.length),
            site: site ? (model.siteById.get(Number(site[1])) ?? -1) : -1,
            instance: object < 0 ? -1 : model.instances.id.indexOf(object),
            fn: model.functionOf(parts.get("function") ?? ""),
            only: ONLY.includes(only) ? (only as Only) : "",
        };
        this.refuse();
        const known = ["time", "from", "home", "thread", "site", "object", "function", "only"];
        this.options = new Map([...parts].filter(([name]) => !known.includes(name)));
    }

    /** Lifts conditions whose rows the page does not hold apart: none of them would pass, which is not what was recorded. */
    private refuse(): void {
        const { model, filter } = this;
        this.refused = [];
        if (filter.thread >= 0 && model.foldedThreads[filter.thread] === 1) {
            this.refused.push(`thread ${filter.thread}`);
            this.filter = { ...this.filter, thread: -1 };
        }
        if (filter.site >= 0 && model.foldedSites[filter.site] === 1) {
            this.refused.push(`object S${model.sites[filter.site].id}`);
            this.filter = { ...this.filter, site: -1 };
        }
        if (filter.instance >= 0 && !model.canFilterByInstance(filter.instance)) {
            this.refused.push(`object #${model.instances.id[filter.instance]}`);
            this.filter = { ...this.filter, instance: -1 };
        }
    }
}
