-- Which share of the accesses to each object type writes; where no write was sampled, the upper bound of this share (95 %).
with sites as (
  select o.site, o.kind, o.name
  from objects o
  join (select min(object) as first_object from objects group by site) f on o.object = f.first_object
),
by_site as (
  select
    o.site,
    count(*) as samples,
    cast(sum(a.weight) as bigint) as accesses,
    count(case when a.is_write then 1 end) as write_samples,
    cast(sum(case when a.is_write then a.weight else 0 end) as bigint) as write_accesses
  from accesses a
  left join objects o on o.object = a.object
  where a.level not in (1, 2, 3, 6)
  group by o.site
)
select
  b.site,
  coalesce(s.kind, 'unknown') as kind,
  s.name,
  b.samples,
  b.accesses,
  b.write_samples,
  b.write_accesses,
  cast(1000 * cast((1000 * b.write_accesses - 1000 * b.write_accesses % nullif(b.accesses, 0))
      / nullif(b.accesses, 0) + 0.25 as bigint)
    + (1000 * (1000 * b.write_accesses % nullif(b.accesses, 0))
      - 1000 * (1000 * b.write_accesses % nullif(b.accesses, 0)) % nullif(b.accesses, 0))
      / nullif(b.accesses, 0) + 0.25 as bigint) as write_ppm,
  case when b.write_samples > 0 then null
    when b.samples <= 3 then 1000000
    else cast((2999999 + b.samples - (2999999 + b.samples) % b.samples) / b.samples as bigint)
  end as bound_ppm
from by_site b
left join sites s on s.site = b.site
order by b.accesses desc, b.site nulls last
