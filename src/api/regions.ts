import { z } from 'zod';
import { CLASSES_MAX, defaultPolicy, policyBounds, type Policy } from '../../domain/policy.ts';
import { isSequenceExhausted, type Sql } from '../database/connection.ts';
import { regionById, type ApiDeps, type App } from './context.ts';
import { dropCanary, promoteCanary, saveCanary, savePolicy } from './policies.ts';
import { ApiProblem } from './problem.ts';
import { FleetId, FleetIdParams, NoBody, Point, VehicleClass } from './schemas.ts';

const RADIUS_MAX_M = 500_000;

const RegionBody = z.strictObject({
  name: z
    .string()
    .min(1)
    .max(200)
    .refine((name) => !/\p{C}/u.test(name), 'must hold no control character')
    .meta({ examples: ['Manhattan'] }),
  center: Point,
  radiusM: z
    .number()
    .positive()
    .max(RADIUS_MAX_M)
    .meta({ description: 'Pickups lie within.', examples: [12_000] }),
});
type RegionBody = z.infer<typeof RegionBody>;

const Region = z
  .object({ id: FleetId, ...RegionBody.shape, policyVersion: z.int() })
  .meta({ id: 'Region', description: 'A city.' });

// Bounds are shown here and checked with the rest of the policy, so that one answer names all that is wrong.
const settings = Object.fromEntries(
  Object.entries(policyBounds).map(([setting, { min, max, integer }]) => [
    setting,
    z.number().meta({ minimum: min, maximum: max, ...(integer && { type: 'integer' }) }),
  ]),
) as Record<keyof typeof policyBounds, z.ZodNumber>;
const PolicySettings = z.strictObject({
  matching: z.enum(['nearest', 'batch']),
  asking: z.enum(['offer', 'assign']).meta({ description: 'Whether drivers decide, or are assigned.' }),
  vehicleClasses: z
    .array(VehicleClass)
    .max(CLASSES_MAX)
    .readonly()
    .meta({ description: 'From the lowest to the highest; a ride may be given a higher one in time.' }),
  ...settings,
});

const PolicyBody = PolicySettings.partial()
  .extend({
    version: z
      .int()
      .optional()
      .meta({ description: 'The version this change is based on; refused if there is a newer one.' }),
  })
  .meta({ id: 'PolicyChange', examples: [{ decisionTtlMs: 20_000, maxLifetimeMs: 40_000 }] });

const VersionedPolicy = z.object({ version: z.int(), ...PolicySettings.shape }).meta({
  id: 'Policy',
  description: 'The settings that a region’s dispatch runs under. Milliseconds, metres, m/s.',
  examples: [{ version: 1, ...defaultPolicy }],
});

export function regionRoutes(app: App, deps: ApiDeps): void {
  putRegion(app, deps);
  getRegion(app, deps);
  getPolicy(app, deps);
  putPolicy(app, deps);
  getCanary(app, deps);
  putCanary(app, deps);
  promoteCanaryRoute(app, deps);
  deleteCanary(app, deps);
}

function putRegion(app: App, { database, regions, newRegionPolicy }: ApiDeps): void {
  app.put(
    '/regions/:id',
    {
      schema: {
        operationId: 'putRegion',
        tags: ['regions'],
        summary: 'Create a region, or change its name, center or radius',
        description: 'A new region runs under the service’s policy for new regions, which becomes its version 1.',
        params: FleetIdParams,
        body: RegionBody,
        response: { 200: Region, 201: Region },
      },
      config: { roles: ['ops'], problems: ['regions_exhausted'] },
    },
    async ({ params: { id }, body, identity }, reply) => {
      const first = { policy: newRegionPolicy, by: identity.sub };
      const { created, policyVersion } = await saveRegion(database.cold, id, body, first).catch((error: unknown) => {
        throw isSequenceExhausted(error) ? new ApiProblem('regions_exhausted') : error;
      });
      regions.forget();
      return reply.code(created ? 201 : 200).send({ id, ...body, policyVersion });
    },
  );
}

function getRegion(app: App, { regions }: ApiDeps): void {
  app.get(
    '/regions/:id',
    {
      schema: {
        operationId: 'getRegion',
        tags: ['regions'],
        summary: 'A region',
        params: FleetIdParams,
        response: { 200: Region },
      },
      config: { roles: ['ops'], problems: ['region_not_found'] },
    },
    async ({ params }) => {
      const { id, name, center, radiusM, policyVersion } = await regionById(regions, params.id);
      return { id, name, center, radiusM, policyVersion };
    },
  );
}

function getPolicy(app: App, { regions }: ApiDeps): void {
  app.get(
    '/regions/:id/policy',
    {
      schema: {
        operationId: 'getPolicy',
        tags: ['regions'],
        summary: 'The policy a region runs under',
        params: FleetIdParams,
        response: { 200: VersionedPolicy },
      },
      config: { roles: ['ops'], problems: ['region_not_found'] },
    },
    async ({ params }) => {
      const { policyVersion, policy } = await regionById(regions, params.id);
      return { version: policyVersion, ...policy };
    },
  );
}

function putPolicy(app: App, { database, regions }: ApiDeps): void {
  app.put(
    '/regions/:id/policy',
    {
      schema: {
        operationId: 'putPolicy',
        tags: ['regions'],
        summary: 'Change a region’s policy',
        description:
          'Settings that are left out stay as they are. A change makes a new version; rides and offers keep the ' +
          'version they were made under. Repeating a change changes nothing. Other processes follow within two seconds.',
        params: FleetIdParams,
        body: PolicyBody,
        response: { 200: VersionedPolicy },
      },
      config: { roles: ['ops'], problems: ['region_not_found', 'policy_invalid', 'policy_version_changed'] },
    },
    async ({ params: { id }, body: { version, ...change }, identity }) => {
      const saved = await savePolicy(database.cold, id, { change, basedOn: version ?? null, by: identity.sub });
      regions.forget();
      return { version: saved.version, ...saved.policy };
    },
  );
}

const Share = z
  .number()
  .min(0.0001)
  .max(1)
  .meta({ description: 'Of the new rides.', examples: [0.05] });
const CanaryBody = PolicyBody.extend({ share: Share }).meta({
  id: 'PolicyCanaryChange',
  examples: [{ share: 0.05, decisionTtlMs: 20_000, maxLifetimeMs: 40_000 }],
});
const PolicyCanary = VersionedPolicy.extend({ share: Share }).meta({
  id: 'PolicyCanary',
  description: 'A version of the policy that is tried on a share of the rides.',
  examples: [{ version: 2, share: 0.05, ...defaultPolicy }],
});

function getCanary(app: App, { regions }: ApiDeps): void {
  app.get(
    '/regions/:id/policy/canary',
    {
      schema: {
        operationId: 'getCanary',
        tags: ['regions'],
        summary: 'The version that is being tried',
        params: FleetIdParams,
        response: { 200: PolicyCanary },
      },
      config: { roles: ['ops'], problems: ['region_not_found', 'canary_not_found'] },
    },
    async ({ params }) => {
      const { number, canary } = await regionById(regions, params.id);
      if (canary === null) throw new ApiProblem('canary_not_found');
      return { ...canary, ...(await regions.policy(number, canary.version)) };
    },
  );
}

function putCanary(app: App, { database, regions }: ApiDeps): void {
  app.put(
    '/regions/:id/policy/canary',
    {
      schema: {
        operationId: 'putCanary',
        tags: ['regions'],
        summary: 'Try a change of the policy on a share of the new rides',
        description:
          'Which rides is decided by their ids. The same change again sets the share, another one begins a new canary. ' +
          'Rides keep the version they were requested under; metrics tell versions apart.',
        params: FleetIdParams,
        body: CanaryBody,
        response: { 200: PolicyCanary },
      },
      config: { roles: ['ops'], problems: ['region_not_found', 'policy_invalid', 'policy_version_changed'] },
    },
    async ({ params: { id }, body: { version, share, ...change }, identity }) => {
      const asked = { change, share, basedOn: version ?? null, by: identity.sub };
      const saved = await saveCanary(database.cold, id, asked);
      regions.forget();
      return { version: saved.version, share: saved.share, ...saved.policy };
    },
  );
}

function promoteCanaryRoute(app: App, { database, regions }: ApiDeps): void {
  app.post(
    '/regions/:id/policy/canary/promote',
    {
      schema: {
        operationId: 'promoteCanary',
        tags: ['regions'],
        summary: 'Make the version that is being tried the policy of all new rides',
        params: FleetIdParams,
        body: NoBody,
        response: { 200: VersionedPolicy },
      },
      config: { roles: ['ops'], problems: ['region_not_found', 'canary_not_found'] },
    },
    async ({ params: { id } }) => {
      const { version, policy } = await promoteCanary(database.cold, id);
      regions.forget();
      return { version, ...policy };
    },
  );
}

function deleteCanary(app: App, { database, regions }: ApiDeps): void {
  app.delete(
    '/regions/:id/policy/canary',
    {
      schema: {
        operationId: 'deleteCanary',
        tags: ['regions'],
        summary: 'Try no more: new rides run under the policy that others have',
        description: 'Rides that were requested under it keep it. Repeated, it changes nothing.',
        params: FleetIdParams,
        response: { 200: VersionedPolicy },
      },
      config: { roles: ['ops'], problems: ['region_not_found'] },
    },
    async ({ params: { id } }) => {
      const { version, policy } = await dropCanary(database.cold, id);
      regions.forget();
      return { version, ...policy };
    },
  );
}

/**
 * Updated first and inserted only if that finds nothing: an insert that meets a conflict uses up a number all the
 * same, and there are 4,095.
 */
function saveRegion(
  sql: Sql,
  id: string,
  { name, center, radiusM }: RegionBody,
  first: { readonly policy: Policy; readonly by: string },
): Promise<{ created: boolean; policyVersion: number }> {
  return sql.begin(async (transaction) => {
    const change = transaction`name = ${name}, center_lat = ${center.lat}, center_lng = ${center.lng},
      radius_m = ${radiusM}, updated_at = now()`;
    const [known] = await transaction<{ policy_version: number }[]>`
      update regions set ${change} where id = ${id} returning policy_version`;
    if (known !== undefined) return { created: false, policyVersion: known.policy_version };
    const [made] = await transaction<{ number: number; policy_version: number; created: boolean }[]>`
      insert into regions (id, name, center_lat, center_lng, radius_m, policy_version)
      values (${id}, ${name}, ${center.lat}, ${center.lng}, ${radiusM}, 1)
      on conflict (id) do update set ${change}
      returning number, policy_version, xmax = 0 as created`;
    const { number, policy_version: policyVersion, created } = made!;
    if (created) {
      await transaction`insert into policies (region, version, document, created_by)
        values (${number}, 1, ${transaction.json(first.policy as never)}, ${first.by})`;
      // Of a new region there is nothing to be seen that isn't.
      await transaction`insert into presence_epochs (region, since, watched_at) values (${number}, '-infinity', now())`;
    }
    return { created, policyVersion };
  });
}
