-- One row per call stack, depth and function there (inlined ones first): depth 0, inline_depth 0 is the innermost function.
select
  s.host, s.run, -- fleet
  s.stack,
  s.depth,
  f.depth as inline_depth,
  f.function,
  f.file,
  f.line,
  f.module,
  s.location
from stacks s
left join frames f
  on f.location = s.location
  and f.host = s.host and f.run = s.run -- fleet
