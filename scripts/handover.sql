-- How long one thread uses an object before another one accesses it (the example of MemProf's paper, USENIX ATC 2012).
-- Accesses of every level count, those that a cache of the accessing core or node answered too: `scripts/README.md`, "handover".
with steps as (
  select
    object, thread, cast(time_ns as bigint) as time_ns,
    lag(thread) over (partition by object order by time_ns, access) as before_thread,
    lag(cast(time_ns as bigint)) over (partition by object order by time_ns, access) as before_ns
  from accesses
  where object is not null
),
sums as (
  select object, count(*) as handovers, cast(sum(time_ns - before_ns) as bigint) as sum_ns
  from steps
  where thread <> before_thread
  group by object
)
select h.object, o.site, o.name, h.handovers, h.sum_ns, cast((h.sum_ns - h.sum_ns % h.handovers) / h.handovers as bigint) as mean_ns
from sums h
join objects o on o.object = h.object
order by h.handovers desc, h.object
