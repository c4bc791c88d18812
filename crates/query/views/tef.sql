-- One row per sampled access, with its thread and the object that it reached: a Thread Event Flow is `where thread = N order by time_ns, access`.
select
  a.host, a.run, -- fleet
  a.thread,
  cast(a.time_ns as bigint) as time_ns,
  a.access,
  t.process,
  t.tid,
  t.name as thread_name,
  t.start_function,
  a.object,
  o.site,
  coalesce(o.kind, 'unknown') as kind,
  o.name,
  o.site_file,
  o.site_line,
  a.address,
  a.address - a.address % 4096 as page,
  a.cpu,
  a.node,
  a.home,
  a.node <> a.home as is_remote,
  a.is_write,
  a.is_atomic,
  a.is_range,
  a.level not in (1, 2, 3, 6) as is_memory_access,
  a.level,
  a.latency_cycles,
  a.location,
  a.stack,
  a.weight
from accesses a
join threads t
  on t.thread = a.thread
  and t.host = a.host and t.run = a.run -- fleet
left join objects o
  on o.object = a.object
  and o.host = a.host and o.run = a.run -- fleet
