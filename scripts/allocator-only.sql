-- Objects that only their allocating thread accesses.
with by_object as (
  select
    a.object,
    o.site,
    min(case when a.thread = o.thread then 1 else 0 end) as is_alone,
    sum(a.weight) as accesses,
    sum(case when a.node <> a.home then a.weight else 0 end) as remote_accesses,
    sum(case when a.thread = o.thread then a.weight else 0 end) as by_allocator
  from accesses a
  join objects o on o.object = a.object
  where a.level not in (1, 2, 3, 6) and o.thread is not null
  group by a.object, o.site
),
by_site as (
  select
    site,
    count(*) as instances,
    cast(sum(is_alone) as bigint) as alone_instances,
    cast(sum(accesses) as bigint) as accesses,
    cast(sum(remote_accesses) as bigint) as remote_accesses,
    cast(sum(by_allocator) as bigint) as by_allocator,
    cast(sum(case when is_alone = 1 then accesses else 0 end) as bigint) as alone_accesses,
    cast(sum(case when is_alone = 1 then remote_accesses else 0 end) as bigint) as alone_remote_accesses
  from by_object
  group by site
),
sites as (
  select o.site, o.kind, o.name
  from objects o
  join (select min(object) as first_object from objects group by site) f on o.object = f.first_object
)
select
  b.site, s.kind, s.name, b.instances, b.alone_instances, b.accesses, b.remote_accesses, b.by_allocator,
  cast(1000 * cast((1000 * b.by_allocator - 1000 * b.by_allocator % nullif(b.accesses, 0))
      / nullif(b.accesses, 0) + 0.25 as bigint)
    + (1000 * (1000 * b.by_allocator % nullif(b.accesses, 0))
      - 1000 * (1000 * b.by_allocator % nullif(b.accesses, 0)) % nullif(b.accesses, 0))
      / nullif(b.accesses, 0) + 0.25 as bigint) as by_allocator_ppm,
  b.alone_accesses, b.alone_remote_accesses
from by_site b
join sites s on s.site = b.site
order by b.accesses desc, b.site
