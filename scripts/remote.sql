-- How many accesses are remote, and which share.
with sums as (
  select
    count(*) as samples,
    cast(coalesce(sum(weight), 0) as bigint) as accesses,
    count(is_remote) as known_samples,
    cast(coalesce(sum(case when is_remote is not null then weight end), 0) as bigint) as known_accesses,
    count(case when is_remote then 1 end) as remote_samples,
    cast(coalesce(sum(case when is_remote then weight end), 0) as bigint) as remote_accesses
  from tef
  where is_memory_access
)
select
  samples, accesses, known_samples, known_accesses, remote_samples, remote_accesses,
  cast(1000 * cast((1000 * remote_accesses - 1000 * remote_accesses % nullif(known_accesses, 0))
      / nullif(known_accesses, 0) + 0.25 as bigint)
    + (1000 * (1000 * remote_accesses % nullif(known_accesses, 0))
      - 1000 * (1000 * remote_accesses % nullif(known_accesses, 0)) % nullif(known_accesses, 0))
      / nullif(known_accesses, 0) + 0.25 as bigint) as remote_ppm
from sums
