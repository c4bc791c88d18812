-- Pages that hold objects of several threads, each used by one thread only.
with private_objects as (
  select object
  from accesses
  where level not in (1, 2, 3, 6) and object is not null
  group by object
  having min(thread) = max(thread)
)
select
  t.process,
  a.address - a.address % 4096 as page,
  count(distinct a.object) as objects,
  count(distinct a.thread) as threads,
  count(distinct a.node) as nodes,
  count(*) as samples,
  cast(sum(a.weight) as bigint) as accesses,
  cast(sum(case when a.node <> a.home then a.weight else 0 end) as bigint) as remote_accesses
from accesses a
join private_objects p on p.object = a.object
join threads t on t.thread = a.thread
where a.level not in (1, 2, 3, 6)
group by t.process, a.address - a.address % 4096
having count(distinct a.thread) >= 2 and count(distinct a.node) >= 2
order by accesses desc, t.process, page
