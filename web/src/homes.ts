// Whether enough is known of where accesses go for shares of them to mean anything: as `insight` decides it, under a filter too.

import { KNOWN_LEAST } from "./decision";
import { shortPercent } from "./format";
import type { Selection } from "./selection";
import type { Context } from "./view";
import { said } from "./words";

/** Verdicts that hold whatever passes a filter. */
const NOT_SEEN: Partial<Record<string, string>> = {
    blind: "Too few accesses were seen",
    "not-sampled": "No event of memory accesses was sampled",
};

/** Of the accesses that pass, the share with known home (and from a known node); NaN where none pass. Without a filter, as `insight` has it. */
export function knownHomes({ model }: Context, selection: Selection, isFiltered: boolean, but = 0): number {
    const whole = selection.whole(but);
    const { served, accesses } = model.head.headline.totals;
    const [known, all] = isFiltered
        ? [whole.known.weight[0], whole.all.weight[0]]
        : [served.reduce((sum, node) => sum + node[0], 0), accesses[0]];
    return all > 0 ? Math.min(known / all, 1) : NaN;
}

/** Whether nothing is known of memory accesses: none of the recorded events samples them. */
export function isNotSampled({ model }: Context): boolean {
    return model.head.headline.verdict === "not-sampled";
}

/** Why nothing can be said of where accesses go, `known` of which have a known home; "" where it can, or where there are none. */
export function whyUnknown({ model }: Context, isFiltered: boolean, known: number): string {
    const why = NOT_SEEN[model.head.headline.verdict];
    if (why !== undefined) return why;
    return known < KNOWN_LEAST ? `The home node of most ${isFiltered ? "of these " : ""}${said.many} is unknown` : "";
}

/** What shares of these accesses are of: `accesses`, or `accesses with known home` where some have none. */
export function ofKnown(known: number): string {
    return known < 1 - 1e-9 ? `${said.many} with known home` : said.many;
}

/** How many are in no picture of where accesses go; "" where all are. */
export function leftOut(known: number): string {
    return known < 1 - 1e-9 ? `${shortPercent(1 - known)} of the ${said.many} have an unknown home and are not in this picture.` : "";
}
