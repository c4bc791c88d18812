-- Which thread accessed each object first, and which threads later.
with steps as (
  select
    object, thread, node, weight,
    first_value(thread) over (partition by object order by time_ns, access) as first_thread,
    first_value(node) over (partition by object order by time_ns, access) as first_node
  from accesses
  where level not in (1, 2, 3, 6) and object is not null
),
by_object as (
  select
    object,
    min(first_thread) as first_thread,
    max(case when thread <> first_thread then 1 else 0 end) as is_shared,
    sum(weight) as accesses,
    sum(case when thread = first_thread then weight else 0 end) as by_first_thread,
    sum(case when node = first_node then weight else 0 end) as by_first_node
  from steps
  group by object
),
by_site as (
  select
    o.site,
    count(*) as instances,
    count(case when o.thread = b.first_thread then 1 end) as first_by_allocator,
    cast(sum(b.is_shared) as bigint) as shared_instances,
    cast(sum(b.accesses) as bigint) as accesses,
    cast(sum(b.by_first_thread) as bigint) as by_first_thread,
    cast(sum(b.by_first_node) as bigint) as by_first_node
  from by_object b
  join objects o on o.object = b.object
  group by o.site
),
sites as (
  select o.site, o.kind, o.name
  from objects o
  join (select min(object) as first_object from objects group by site) f on o.object = f.first_object
)
select
  b.site, s.kind, s.name, b.instances, b.first_by_allocator, b.shared_instances, b.accesses, b.by_first_thread, b.by_first_node,
  cast(
    1000 * cast((1000 * (b.accesses - b.by_first_thread) - 1000 * (b.accesses - b.by_first_thread) % nullif(b.accesses, 0))
      / nullif(b.accesses, 0) + 0.25 as bigint)
    + (1000 * (1000 * (b.accesses - b.by_first_thread) % nullif(b.accesses, 0))
      - 1000 * (1000 * (b.accesses - b.by_first_thread) % nullif(b.accesses, 0)) % nullif(b.accesses, 0))
      / nullif(b.accesses, 0) + 0.25 as bigint
  ) as later_ppm
from by_site b
join sites s on s.site = b.site
order by b.accesses desc, b.site
