/**
 * drizzle, by its CommonJS build. For each file of an ES module Node parses the whole package.json of its package, and
 * drizzle's has 179 kB: every process of the service was up half a second later.
 */
import { createRequire } from 'node:module';
import type * as Orm from 'drizzle-orm';
import type * as PgCore from 'drizzle-orm/pg-core';
import type * as PostgresJs from 'drizzle-orm/postgres-js';
import type * as Migrator from 'drizzle-orm/postgres-js/migrator';

const require = createRequire(import.meta.url);
export const orm = require('drizzle-orm') as typeof Orm;
export const pgCore = require('drizzle-orm/pg-core') as typeof PgCore;
export const { drizzle } = require('drizzle-orm/postgres-js') as typeof PostgresJs;
export const { migrate } = require('drizzle-orm/postgres-js/migrator') as typeof Migrator;
