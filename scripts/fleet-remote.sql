-- Remote accesses on each host of a fleet, all its runs together.
with sums as (
  select
    host,
    count(distinct run) as runs,
    count(*) as samples,
    cast(sum(weight) as bigint) as accesses,
    cast(sum(case when is_remote is not null then weight else 0 end) as bigint) as known_accesses,
    cast(sum(case when is_remote then weight else 0 end) as bigint) as remote_accesses
  from tef
  where is_memory_access
  group by host
)
select
  host, runs, samples, accesses, known_accesses, remote_accesses,
  cast(1000 * cast((1000 * remote_accesses - 1000 * remote_accesses % nullif(known_accesses, 0))
      / nullif(known_accesses, 0) + 0.25 as bigint)
    + (1000 * (1000 * remote_accesses % nullif(known_accesses, 0))
      - 1000 * (1000 * remote_accesses % nullif(known_accesses, 0)) % nullif(known_accesses, 0))
      / nullif(known_accesses, 0) + 0.25 as bigint) as remote_ppm
from sums
order by host
