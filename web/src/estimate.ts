// Numbers with their uncertainty, from weighted samples: the formulas of docs/metrics.md, "Uncertainty", as `numapilot_insight` has them.

import type { Estimate } from "./payload";

/** Two-sided 95 % quantile of the normal distribution. */
const Z = 1.959963984540054;
/** Below this many samples on either side of a share, the cautious variance is used. */
const FEW = 5;

/** Sums over samples: their number, the accesses they stand for, the sampling variance of these. */
export interface Tally {
    samples: number;
    weight: number;
    variance: number;
}

export function exact(value: number): Estimate {
    return [value, value, value];
}

export function isExact(estimate: Estimate): boolean {
    return estimate[1] === estimate[2];
}

export function margin(estimate: Estimate): number {
    return (estimate[2] - estimate[1]) / 2;
}

/** How many accesses there were. */
export function total(tally: Tally): Estimate {
    const { samples, weight, variance } = tally;
    if (variance <= 0) return exact(weight);
    const effective = (weight * weight) / variance;
    const perSample = weight / effective;
    const root = Math.sqrt(effective + 0.375);
    const low = Math.max(root - Z / 2, 0) ** 2 - 0.375;
    const high = (root + Z / 2) ** 2 - 0.375;
    return [weight, Math.min(Math.max(low * perSample, samples), weight), Math.max(high * perSample, weight)];
}

/** Whether it is a share of nothing, such as the remote share of accesses none of whose home nodes is known. */
export function isOfNothing(share: Estimate): boolean {
    return share[1] <= 0 && share[2] >= 1;
}

/** Which share of `all` the samples of `part`, which are among them, are. */
export function shareOf(part: Tally, all: Tally): Estimate {
    if (all.weight <= 0) return [0, 0, 1];
    const share = Math.min(Math.max(part.weight / all.weight, 0), 1);
    return all.variance <= 0 ? exact(share) : wilson(share, effectiveSamples(part, all, share));
}

function effectiveSamples(part: Tally, all: Tally, share: number): number {
    const squared = all.weight * all.weight;
    const byWeights = squared / all.variance;
    const rest = { samples: all.samples - part.samples, variance: Math.max(all.variance - part.variance, 0) };
    const variance = (part.variance * (1 - share) ** 2 + rest.variance * share ** 2) / squared;
    const byVariance = (share * (1 - share)) / variance;
    if (!Number.isFinite(byVariance)) return byWeights;
    return part.samples < FEW || rest.samples < FEW ? Math.min(byWeights, byVariance) : byVariance;
}

/** Wilson's interval for a share seen in `samples` draws. */
function wilson(share: number, samples: number): Estimate {
    const z2 = Z * Z;
    const centre = (share + z2 / (2 * samples)) / (1 + z2 / samples);
    const half = (Z / (1 + z2 / samples)) * Math.sqrt((share * (1 - share)) / samples + z2 / (4 * samples * samples));
    const clamp = (value: number, low: number, high: number): number => Math.min(Math.max(value, low), high);
    return [share, clamp(centre - half, 0, share), clamp(centre + half, share, 1)];
}

/** Imbalance of loads over mean: population definition, with the linearised interval of the loads' own. */
export function imbalance(loads: readonly Estimate[]): { population: Estimate; sample: Estimate } {
    const n = loads.length;
    const mean = loads.reduce((sum, load) => sum + load[0], 0) / n;
    if (n < 2 || mean <= 0) return { population: exact(0), sample: exact(0) };
    const population = Math.sqrt(loads.reduce((sum, load) => sum + (load[0] - mean) ** 2, 0) / n) / mean;
    const deviation = population * mean;
    let squared = 0;
    for (const load of loads) {
        const spread = deviation > 0 ? (load[0] - mean) / (n * deviation * mean) : 1 / (Math.sqrt(n) * mean);
        squared += ((spread - population / (n * mean)) * margin(load)) ** 2;
    }
    const half = Math.sqrt(squared);
    const low = Math.max(population - half, 0);
    const high = Math.max(Math.min(population + half, Math.sqrt(n - 1)), population);
    const scale = Math.sqrt(n / (n - 1));
    return { population: [population, low, high], sample: [population * scale, low * scale, high * scale] };
}

/** Sum of independent estimates: margins add in quadrature, on each side. */
export function sumIndependent(parts: readonly Estimate[]): Estimate {
    let value = 0,
        below = 0,
        above = 0;
    for (const part of parts) {
        value += part[0];
        below += (part[0] - part[1]) ** 2;
        above += (part[2] - part[0]) ** 2;
    }
    return [value, value - Math.sqrt(below), value + Math.sqrt(above)];
}
