-- One row per page (4,096 bytes of a process's address space) that memory accesses reached.
select
  a.host, a.run, -- fleet
  t.process,
  a.address - a.address % 4096 as page,
  count(*) as samples,
  cast(sum(a.weight) as bigint) as accesses,
  cast(sum(case when a.is_write then a.weight else 0 end) as bigint) as write_accesses,
  cast(sum(case when a.node = a.home then a.weight else 0 end) as bigint) as local_accesses,
  cast(sum(case when a.node <> a.home then a.weight else 0 end) as bigint) as remote_accesses,
  count(distinct a.object) as objects,
  count(distinct a.thread) as threads,
  count(distinct a.node) as nodes,
  count(distinct a.home) as homes,
  min(a.home) as least_home,
  max(a.home) as greatest_home,
  cast(min(a.time_ns) as bigint) as first_ns,
  cast(max(a.time_ns) as bigint) as last_ns
from accesses a
join threads t
  on t.thread = a.thread
  and t.host = a.host and t.run = a.run -- fleet
where a.level not in (1, 2, 3, 6)
group by
  a.host, a.run, -- fleet
  t.process, a.address - a.address % 4096
