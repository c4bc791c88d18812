-- Which object types (sites) are accessed most.
with sites as (
  select o.site, o.kind, o.name, o.site_file as file, o.site_line as line
  from objects o
  join (select min(object) as first_object from objects group by site) f on o.object = f.first_object
),
by_object as (
  select
    object,
    count(*) as samples,
    sum(weight) as accesses,
    sum(case when node <> home then weight else 0 end) as remote_accesses,
    sum(case when node is not null and home is not null then weight else 0 end) as known_accesses
  from accesses
  where level not in (1, 2, 3, 6)
  group by object
),
by_site as (
  select
    o.site,
    count(o.object) as instances,
    cast(coalesce(sum(o.bytes), 0) as bigint) as bytes,
    cast(sum(b.samples) as bigint) as samples,
    cast(sum(b.accesses) as bigint) as accesses,
    cast(sum(b.remote_accesses) as bigint) as remote_accesses,
    cast(sum(b.known_accesses) as bigint) as known_accesses
  from by_object b
  left join objects o on o.object = b.object
  group by o.site
),
whole as (
  select cast(sum(accesses) as bigint) as accesses, cast(sum(remote_accesses) as bigint) as remote_accesses from by_site
)
select
  b.site,
  coalesce(s.kind, 'unknown') as kind,
  s.name,
  s.file,
  s.line,
  b.instances,
  b.bytes,
  b.samples,
  b.accesses,
  cast(1000 * cast((1000 * b.accesses - 1000 * b.accesses % nullif(w.accesses, 0))
      / nullif(w.accesses, 0) + 0.25 as bigint)
    + (1000 * (1000 * b.accesses % nullif(w.accesses, 0))
      - 1000 * (1000 * b.accesses % nullif(w.accesses, 0)) % nullif(w.accesses, 0))
      / nullif(w.accesses, 0) + 0.25 as bigint) as share_ppm,
  b.remote_accesses,
  cast(1000 * cast((1000 * b.remote_accesses - 1000 * b.remote_accesses % nullif(b.known_accesses, 0))
      / nullif(b.known_accesses, 0) + 0.25 as bigint)
    + (1000 * (1000 * b.remote_accesses % nullif(b.known_accesses, 0))
      - 1000 * (1000 * b.remote_accesses % nullif(b.known_accesses, 0)) % nullif(b.known_accesses, 0))
      / nullif(b.known_accesses, 0) + 0.25 as bigint) as remote_ppm,
  cast(1000 * cast((1000 * b.remote_accesses - 1000 * b.remote_accesses % nullif(w.remote_accesses, 0))
      / nullif(w.remote_accesses, 0) + 0.25 as bigint)
    + (1000 * (1000 * b.remote_accesses % nullif(w.remote_accesses, 0))
      - 1000 * (1000 * b.remote_accesses % nullif(w.remote_accesses, 0)) % nullif(w.remote_accesses, 0))
      / nullif(w.remote_accesses, 0) + 0.25 as bigint)
    as remote_share_ppm
from by_site b
cross join whole w
left join sites s on s.site = b.site
order by b.accesses desc, b.site nulls last
