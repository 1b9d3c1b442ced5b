/** Riders and drivers who aren't brought together. */
import { z } from 'zod';
import type { ApiDeps, App } from './context.ts';
import { ApiProblem } from './problem.ts';
import { cursorOf, pageOf, pageQuery } from './requests.ts';
import { FleetId, NoBody, Time } from './schemas.ts';

const Pair = z.strictObject({ id: FleetId, driverId: FleetId });
const Block = z
  .object({ riderId: FleetId, driverId: FleetId, createdAt: Time, createdBy: z.string() })
  .meta({ id: 'Block', description: 'This rider’s rides aren’t offered to this driver.' });
const ROLES = ['service', 'ops'] as const;

export function blockRoutes(app: App, deps: ApiDeps): void {
  putBlock(app, deps);
  deleteBlock(app, deps);
  getBlocks(app, deps);
}

function putBlock(app: App, { database }: ApiDeps): void {
  app.put(
    '/riders/:id/blocks/:driverId',
    {
      schema: {
        operationId: 'putBlock',
        tags: ['riders'],
        summary: 'Keep a rider and a driver apart',
        description: 'From the next lease on; what is offered or assigned already stays. Repeated, it changes nothing.',
        params: Pair,
        body: NoBody,
        response: { 200: Block },
      },
      config: { roles: ROLES, problems: ['driver_not_found'] },
    },
    async ({ params: { id: riderId, driverId }, identity }) => {
      // The driver's row is held: a block goes along when the driver changes region.
      const [row] = await database.cold<{ created_at: Date; created_by: string }[]>`
        with driver as (select region from drivers where id = ${driverId} for share)
        insert into rider_driver_blocks as b (region, rider_id, driver_id, created_by)
        select region, ${riderId}, ${driverId}, ${identity.sub} from driver
        on conflict (region, rider_id, driver_id) do update set created_by = b.created_by
        returning created_at, created_by`;
      if (row === undefined) throw new ApiProblem('driver_not_found');
      return { riderId, driverId, createdAt: row.created_at.toISOString(), createdBy: row.created_by };
    },
  );
}

function deleteBlock(app: App, { database }: ApiDeps): void {
  app.delete(
    '/riders/:id/blocks/:driverId',
    {
      schema: {
        operationId: 'deleteBlock',
        tags: ['riders'],
        summary: 'Bring them together again',
        description: 'Repeated, it changes nothing.',
        params: Pair,
        response: { 200: z.object({ riderId: FleetId, driverId: FleetId }) },
      },
      config: { roles: ROLES },
    },
    async ({ params: { id: riderId, driverId } }) => {
      await database.cold`delete from rider_driver_blocks b using drivers d
        where d.id = ${driverId} and b.region = d.region and b.rider_id = ${riderId} and b.driver_id = d.id`;
      return { riderId, driverId };
    },
  );
}

function getBlocks(app: App, { database }: ApiDeps): void {
  app.get(
    '/riders/:id/blocks',
    {
      schema: {
        operationId: 'listBlocks',
        tags: ['riders'],
        summary: 'The drivers kept from a rider, by id',
        params: z.strictObject({ id: FleetId }),
        querystring: z.strictObject(pageQuery(/^[A-Za-z0-9_-]{1,64}$/)),
        response: { 200: pageOf(Block) },
      },
      config: { roles: ROLES },
    },
    async ({ params: { id: riderId }, query: { limit, cursor } }) => {
      const rows = await database.cold<{ driver_id: string; created_at: Date; created_by: string }[]>`
        select b.driver_id, b.created_at, b.created_by from regions g
        join rider_driver_blocks b on b.region = g.number and b.rider_id = ${riderId}
        where b.driver_id > ${cursor ?? ''} order by b.driver_id limit ${limit + 1}`;
      const items = rows.slice(0, limit).map((row) => ({
        riderId,
        driverId: row.driver_id,
        createdAt: row.created_at.toISOString(),
        createdBy: row.created_by,
      }));
      return { items, nextCursor: cursorOf(rows.length > limit ? items.at(-1)!.driverId : null) };
    },
  );
}
