-- One row per sampled access to a known object, with the object's facts: an Object Event Flow is `where object = N order by time_ns, access`.
select
  a.host, a.run, -- fleet
  a.object,
  cast(a.time_ns as bigint) as time_ns,
  a.access,
  o.site,
  o.kind,
  o.name,
  o.site_function,
  o.site_file,
  o.site_line,
  o.bytes,
  cast(o.birth_ns as bigint) as birth_ns,
  cast(o.death_ns as bigint) as death_ns,
  o.thread as allocating_thread,
  o.node as allocating_node,
  a.thread,
  t.process,
  a.address,
  a.address - o.address as offset_bytes,
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
join objects o
  on o.object = a.object
  and o.host = a.host and o.run = a.run -- fleet
join threads t
  on t.thread = a.thread
  and t.host = a.host and t.run = a.run -- fleet
