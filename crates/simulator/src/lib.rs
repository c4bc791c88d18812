//! Steps a program through the traffic model in epochs: page table, threads, synchronisation, migrations that cost bandwidth and time, a
//! sampler, and a policy in the loop. Deterministic for a seed. Everything that comes of it is *simulated* and says so.
