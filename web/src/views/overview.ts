// The first screen: program and machine, the three main figures, and the findings.

import { KNOWN_LEAST } from "../decision";
import { defined } from "../definitions";
import { h, replace, type Child } from "../dom";
import { imbalance, isExact, margin, shareOf, sumIndependent, total } from "../estimate";
import { count, interval, percent, plural, share, shortPercent, timeNs } from "../format";
import { knownHomes, whyUnknown } from "../homes";
import type { Estimate, Words } from "../payload";
import { OBJECT, shares, type Selection } from "../selection";
import type { Context, View } from "../view";
import { said } from "../words";

/** Imbalance in percent, with its margin where there is one. */
function spread(estimate: Estimate): string {
    const half = margin(estimate) * 100;
    return `${(estimate[0] * 100).toFixed(0)}${half < 0.5 ? "" : ` ± ${half.toFixed(0)}`} %`;
}

function words(parts: readonly Words[]): Child[] {
    return parts.map(([text, isStrong]) => (isStrong ? h("strong", {}, text) : text));
}

function figure(name: string, term: string, value: string, hint: string, says: Child): HTMLElement {
    const [number, unit] = value.endsWith(" %") ? [value.slice(0, -2), " %"] : [value, ""];
    const [main, half] = number.split(" ± ");
    return h(
        "div",
        { class: "figure" },
        h("div", { class: "figure-name" }, defined(name, term)),
        h(
            "div",
            { class: "figure-value", title: hint },
            main,
            half !== undefined && h("span", { class: "margin" }, ` ± ${half}`),
            h("span", { class: "unit" }, unit),
        ),
        h("div", { class: "figure-says" }, says),
    );
}

/** The three figures: `insight`'s own without a filter, estimates from the rows with one. */
function figures({ model, store }: Context, selection: Selection): HTMLElement[] {
    const { head } = model;
    const isFiltered = store.isFiltered();
    const totals = head.headline.totals;
    const n = head.nodes.length;
    const cells = selection.matrix(0);
    const columns = head.nodes.map((_, home) => sumIndependent(head.nodes.map((_, from) => total(cells.tally(from * n + home)))));
    const served = isFiltered ? columns : totals.served;
    const spreads = isFiltered ? imbalance(served.filter((_, node) => head.has_memory[node])) : totals.imbalance;
    const now = shares(selection.whole(), 0);
    const remote = isFiltered ? now.remote : totals.remote_share;
    const accesses = isFiltered ? now.accesses : totals.accesses;
    const samples = isFiltered ? selection.whole().all.samples[0] : totals.samples;
    const how = isFiltered || totals.source === "sampled" ? `estimated from ${plural(samples, "sample", "samples")}` : "counted";
    const all = served.reduce((sum, node) => sum + node[0], 0);
    // Of several that serve as much, the last, as in the text report.
    const busiest = served.reduce((best, node, index) => (node[0] >= served[best][0] ? index : best), 0);
    const busy = all > 0 ? `${model.nodeName(busiest)} serves ${percent(served[busiest][0] / all)}` : "";
    if (head.heap_only) return [];
    // What was not sampled, or hardly, is unknown and not nothing.
    const known = knownHomes({ model, store }, selection, isFiltered);
    const unshown = whyUnknown({ model, store }, isFiltered, known);
    const isEmpty = samples === 0 && accesses[0] === 0;
    if (unshown === "" && isEmpty) {
        return [h("p", { class: "nothing" }, isFiltered ? `No ${said.one} passes the filters.` : `This recording holds no ${said.inFull}.`)];
    }
    const why = head.headline.verdict === "page-faults" ? "Page faults show first touches, not how often memory is accessed" : unshown;
    if (why !== "") return [h("p", { class: "nothing" }, `${why}, so no shares are shown.`)];
    const of = `${count(accesses[0])} ${said.inFull}`;
    const ofWhat = known < 1 - 1e-9 ? `of the ${shortPercent(known)} of ${of} whose home is known` : `of ${of}`;
    return [
        figure("Remote accesses", "Remote", share(remote), interval(remote), `${ofWhat}, ${how}`),
        figure(
            "Controller imbalance",
            "Controller imbalance",
            spread(spreads.population),
            isExact(spreads.population)
                ? "counted, exact"
                : `95 % interval: ${spreads.population
                      .slice(1)
                      .map((v) => (v * 100).toFixed(0))
                      .join(" to ")} %`,
            `${busy}; ${(spreads.sample[0] * 100).toFixed(0)} % by the sample definition`,
        ),
        topFigure({ model, store }, selection),
    ];
}

const remoteWords = (remote: number, known: number): string =>
    known >= KNOWN_LEAST ? `${percent(remote)} of its own are remote` : "the home nodes of most of its own are unknown";

function topFigure({ model, store }: Context, selection: Selection): HTMLElement {
    const { head } = model;
    if (!store.isFiltered()) {
        const row = head.headline.top;
        if (!row) return figure("Top object", "share", "-", "", "no object is known");
        const link = typeof row.key === "object" && "site" in row.key ? siteLink({ model, store }, row.key.site, row.name) : row.name;
        return figure(
            "Top object",
            "share",
            share(row.share),
            interval(row.share),
            h("span", {}, link, ` ${row.place && `(${row.place}) `}receives them; ${remoteWords(row.remote[0], row.known_homes)}`),
        );
    }
    const but = selection.filter.site >= 0 || selection.filter.instance >= 0 ? 0 : OBJECT;
    const sites = selection.by("site", model.rows.site, model.sites.length, but);
    const top = sites.all.weight.reduce((best, weight, site) => (weight > (sites.all.weight[best] ?? 0) ? site : best), 0);
    if (!sites.all.weight[top]) return figure("Top object", "share", "-", "", "no object is known");
    const now = shares(sites, top);
    return figure(
        "Top object",
        "share",
        (model.foldedSites[top] === 1 ? "≥ " : "") + share(shareOf(sites.all.tally(top), selection.whole(but).all.tally(0))),
        `share of the ${said.many} that pass the filters`,
        h(
            "span",
            {},
            siteLink({ model, store }, model.sites[top].id, model.sites[top].name),
            ` receives them; ${remoteWords(now.remote[0], sites.known.weight[top] / sites.all.weight[top])}`,
        ),
    );
}

/** A site's name that leads to its details. */
export function siteLink({ model, store }: Context, siteId: number, name: string): HTMLElement {
    const index = model.siteById.get(siteId) ?? -1;
    const choose = (event: Event): void => {
        event.stopPropagation();
        store.set({ site: index, instance: -1 });
        document.getElementById("object-detail")?.scrollIntoView({ block: "start" });
    };
    const isShown = index >= 0 && model.foldedSites[index] === 0;
    return h("button", { type: "button", class: "link name", disabled: !isShown, click: choose, title: name }, name);
}

export function overview(context: Context): View {
    const { model, store } = context;
    const { head } = model;
    const numbers = h("div", { class: "figures", "aria-live": "polite" });
    const findings = h("ol", { class: "findings" });
    for (const finding of head.findings) {
        const [first, ...rest] = finding.says;
        const name = finding.site === null ? h("strong", {}, first[0]) : siteLink(context, finding.site, first[0]);
        const evidence =
            finding.evidence.length > 0 &&
            h("details", { class: "evidence" }, h("summary", {}, "Evidence"), ...finding.evidence.map((line) => h("p", {}, line)));
        findings.append(h("li", {}, h("p", {}, name, ...words(rest)), h("p", { class: "advice" }, finding.advice), evidence));
    }
    const rest = head.site_count - head.findings.length;
    const more =
        rest > 0 &&
        head.findings.length > 0 &&
        h(
            "p",
            { class: "faint" },
            `${plural(rest, "more allocation site", "more allocation sites")}: `,
            h("a", { href: "#objects-section", click: jump("objects-section") }, "all objects"),
        );
    const element = h(
        "section",
        { class: "card overview", "aria-label": "What the recording shows" },
        h("h1", { class: "verdict" }, ...words(head.verdict)),
        numbers,
        findings,
        more,
    );
    return {
        element,
        render: (selection) => {
            replace(numbers, ...figures(context, selection));
            element.classList.toggle("filtered", store.isFiltered());
        },
    };
}

/** Scrolls to a section without touching the fragment, which holds the reader's choices. */
export function jump(id: string): (event: Event) => void {
    return (event) => {
        event.preventDefault();
        const target = document.getElementById(id);
        target?.scrollIntoView({ block: "start" });
        target?.focus({ preventScroll: true });
    };
}

/** `./streamcluster --threads 16 on opteron-8385 ...`: the page's top. */
export function masthead({ model }: Context): HTMLElement {
    const { recording, line_sampling: lines, headline, grain } = model.head;
    const program = (recording.command[0] ?? "program").split("/").pop() || "program";
    const badge = (text: string, kind: string, hint: string): HTMLElement => h("span", { class: `badge ${kind}`, title: hint }, text);
    const sampled = headline.totals.source === "sampled";
    return h(
        "div",
        { class: "masthead" },
        h(
            "div",
            { class: "what" },
            h("span", { class: "program", title: recording.command.join(" ") }, program),
            h("span", { class: "arguments", title: recording.command.join(" ") }, recording.command.slice(1).join(" ")),
        ),
        h(
            "div",
            { class: "where" },
            h("span", {}, `on ${recording.machine || "an unnamed machine"}`),
            h(
                "span",
                { class: "faint" },
                [
                    plural(recording.node_count, "node", "nodes"),
                    plural(recording.thread_count, "thread", "threads"),
                    timeNs(recording.program_time_ns),
                    `engine ${recording.engine || "unknown"}`,
                    recording.placement,
                ]
                    .filter((t) => t !== "")
                    .join(" · "),
            ),
            recording.is_simulated
                ? badge("simulated machine", "simulated", "Machine, page homes and program time are simulated; the accesses are those of the real program.")
                : recording.origin === "measured"
                  ? badge("measured", "measured", "Recorded on real hardware.")
                  : badge("not simulated", "simulated", "The program ran on the recording host; the machine named here was not simulated."),
            grain.samples > 0 &&
                (sampled
                    ? badge(
                          "sampled",
                          "sampled",
                          `Figures with ± are estimates from ${count(grain.samples)} samples, with 95 % ` +
                              `intervals${lines > 1 ? `; one cache line in ${lines} was simulated` : ""}.`,
                      )
                    : badge(
                          "counted",
                          "measured",
                          "Totals were counted; figures of objects, code and time are estimated from samples, with 95 % intervals.",
                      )),
            model.head.limits.length > 0 &&
                h(
                    "a",
                    { class: "badge limits", href: "#about-section", click: jump("about-section"), title: model.head.limits.join("\n") },
                    plural(model.head.limits.length, "limit", "limits"),
                ),
            model.head.filtered &&
                badge(
                    "part of the recording",
                    "sampled",
                    `This page was written with --from, --to, --node or --remote, so it holds only the ${said.many} that pass these filters.`,
                ),
        ),
    );
}
