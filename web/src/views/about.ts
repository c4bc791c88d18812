// What the figures rest on: the recording, what got lost, what the page left out to stay small.

import { defined } from "../definitions";
import { h, type Child } from "../dom";
import { count, elide, percent, plural, timeNs } from "../format";
import { isNotSampled } from "../homes";
import type { Context, View } from "../view";
import { said } from "../words";

const ORIGINS = {
    simulated: "simulated",
    measured: "real hardware",
    "other-host": "a model that was not simulated: the program ran on the recording host as it is",
};

export function about(context: Context): View {
    const { model } = context;
    const { recording, limits, grain, headline, line_sampling: lines } = model.head;
    const line = (name: string, ...value: Child[]): HTMLElement[] => [h("dt", {}, name), h("dd", {}, ...value)];
    const totals = headline.totals;
    const sampled =
        `${count(grain.samples)} samples of ${count(Math.round(totals.accesses[0]))} ${said.inFull}` +
        (lines > 1
            ? `; one cache line in ${lines} was simulated, so totals are estimates too`
            : totals.source === "counted"
              ? "; totals were counted exactly"
              : "");
    const sampling = isNotSampled(context) ? `not sampled: no event of this recording samples ${said.inFull}, so nothing is known of them` : sampled;
    const element = h(
        "section",
        { class: "card about", id: "about-section", tabindex: -1, "aria-label": "About this recording" },
        h("div", { class: "card-head" }, h("h2", {}, "Basis of the figures")),
        h(
            "dl",
            {},
            ...line("Program", h("code", {}, elide(recording.command.join(" "), 1000) || "unknown")),
            ...line(
                "Machine",
                `${recording.machine || "unnamed"}, ${plural(recording.node_count, "node", "nodes")}, ` +
                    `${ORIGINS[recording.origin]}${recording.placement ? `; ${recording.placement}` : ""}`,
            ),
            ...line(
                "Engine",
                `${recording.engine || "unknown"}; ${timeNs(recording.program_time_ns)} of program ` +
                    `time${recording.is_simulated ? " (simulated)" : ""}, ${timeNs(recording.wall_time_ns)} of real time`,
            ),
            ...line(
                "Seen",
                [
                    plural(recording.process_count, "process", "processes"),
                    plural(recording.thread_count, "thread", "threads"),
                    plural(recording.object_count, "object", "objects"),
                ].join(", "),
            ),
            ...line("Sampling", defined(sampling, "Counted or sampled")),
            ...line("Intervals", defined("± gives the 95 % interval of the sampling; another run may differ by more", "Uncertainty")),
            ...recording.notes.flatMap((note) => line("Note", note)),
            ...line(
                "Lost",
                limits.length === 0 ? "nothing" : h("ul", {}, ...limits.map((limit) => h("li", { class: "warning" }, limit))),
                " ",
                defined("", "Losses"),
            ),
            ...line("In this page", ...coarse(context)),
            ...line("Trace", h("code", {}, recording.trace)),
            ...line("Written by", `numapilot ${model.head.tool}`),
        ),
    );
    return { element, render: () => undefined };
}

function coarse({ model }: Context): Child[] {
    const { grain } = model.head;
    if (grain.kind === "samples" || grain.level === null) {
        return [`every sample (${count(grain.rows)}): filters apply to single ${said.many}, and nothing was aggregated.`];
    }
    const { level, folded } = grain;
    const limit = (value: number): string => (value >= 2 ** 32 - 1 ? "all" : count(value));
    return [
        `${count(grain.samples)} samples were aggregated into ${count(grain.rows)} cells to keep the page small: by slice of ` +
            `${timeNs(grain.bin_ns)} (a chosen range begins and ends at slices), ` +
            `thread (${limit(level.threads)} separate), object (${limit(level.instances)} instances and ${limit(level.sites)} allocation sites ` +
            `separate), call stack (${limit(level.stacks)} separate), nodes and direction. ` +
            `The rest is folded, and is separate only in tables: ${percent(folded.objects)} of the ${said.many} by object, ${percent(folded.stacks)} by call ` +
            `stack, ${percent(folded.threads)} by thread. Sums are exact. ` +
            "Figures without a filter were computed from every sample.",
    ];
}
