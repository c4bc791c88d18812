//! What the loop says of each decision and of what came of it: the lines of its journal, from which `explain` tells every move back to its evidence.
