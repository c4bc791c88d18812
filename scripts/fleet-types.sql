-- Object types accessed most, over all hosts of a fleet. Types are equal if kind, name, file and line are.
with by_type as (
  select
    kind, name, site_file as file, site_line as line,
    count(distinct host) as hosts,
    count(*) as samples,
    cast(sum(weight) as bigint) as accesses,
    cast(sum(case when is_remote is not null then weight else 0 end) as bigint) as known_accesses,
    cast(sum(case when is_remote then weight else 0 end) as bigint) as remote_accesses
  from oef
  where is_memory_access
  group by kind, name, site_file, site_line
)
select
  kind, name, file, line, hosts, samples, accesses, remote_accesses,
  cast(1000 * cast((1000 * remote_accesses - 1000 * remote_accesses % nullif(known_accesses, 0))
      / nullif(known_accesses, 0) + 0.25 as bigint)
    + (1000 * (1000 * remote_accesses % nullif(known_accesses, 0))
      - 1000 * (1000 * remote_accesses % nullif(known_accesses, 0)) % nullif(known_accesses, 0))
      / nullif(known_accesses, 0) + 0.25 as bigint) as remote_ppm
from by_type
order by accesses desc, kind, name, file, line
