-- A setting of the policy that a ride was requested under; the default is for documents older than the setting.
create or replace function policy_number(p_region smallint, p_version int, p_setting text, p_default float8)
returns float8 language sql stable as $$
  select coalesce((select (document->>p_setting)::float8 from policies where region = p_region and version = p_version), p_default)
$$;
