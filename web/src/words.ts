// What the rows of the recording are, in words: memory accesses, or page faults, which say nothing of how often memory is accessed.

export const said = {
    areFaults: false,
    /** In full. */
    inFull: "memory accesses",
    many: "accesses",
    one: "access",
};

/** Takes the words from the page's data: `Head.counted`. */
export function sayWhat(counted: string): void {
    if (counted !== "page faults") return;
    said.areFaults = true;
    [said.inFull, said.many, said.one] = ["page faults", "page faults", "page fault"];
}

/** The words at the beginning of a sentence. */
export const sentence = (words: string): string => words.charAt(0).toUpperCase() + words.slice(1);
