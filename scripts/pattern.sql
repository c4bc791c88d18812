-- The accesses to an object type, or to one instance, by thread, accessing node, home node and time, as reads and writes. $site or $object chooses; both null: everything.
with ends as (
  select cast(max(time_ns) as bigint) as last_ns from accesses
),
chosen as (
  select
    o.site,
    a.thread,
    a.node,
    a.home,
    cast((10 * cast(a.time_ns as bigint) - 10 * cast(a.time_ns as bigint) % (e.last_ns + 1)) / (e.last_ns + 1) as bigint) as slice,
    a.is_write,
    a.weight,
    a.time_ns
  from accesses a
  cross join ends e
  left join objects o on o.object = a.object
  where a.level not in (1, 2, 3, 6)
    and (cast($site as bigint) is null or o.site = cast($site as bigint))
    and (cast($object as bigint) is null or a.object = cast($object as bigint))
)
select
  site, thread, node, home, slice,
  count(*) as samples,
  cast(sum(case when is_write then 0 else weight end) as bigint) as "reads",
  cast(sum(case when is_write then weight else 0 end) as bigint) as "writes",
  cast(min(time_ns) as bigint) as first_ns,
  cast(max(time_ns) as bigint) as last_ns
from chosen
group by site, thread, node, home, slice
order by site nulls last, thread, node nulls last, home nulls last, slice
