/**
 * drizzle, by its CommonJS build. For each file of an ES module Node parses the whole package.json of its package, and
 * drizzle's has 179 kB: every process of the service was up half a second later.
 */
import { createRequire } from 'node:module';
import type * as orm from 'drizzle-orm';
import type * as pgCore from 'drizzle-orm/pg-core';
import type * as postgresJs from 'drizzle-orm/postgres-js';
import type * as migrator from 'drizzle-orm/postgres-js/migrator';

const require = createRequire(import.meta.url);
export const { and, eq, sql } = require('drizzle-orm') as typeof orm;
export const {
  bigint,
  boolean,
  check,
  customType,
  doublePrecision,
  foreignKey,
  index,
  integer,
  jsonb,
  pgSequence,
  pgTable,
  primaryKey,
  real,
  smallint,
  text,
  timestamp,
  unique,
  uniqueIndex,
  uuid,
} = require('drizzle-orm/pg-core') as typeof pgCore;
export const { drizzle } = require('drizzle-orm/postgres-js') as typeof postgresJs;
export const { migrate } = require('drizzle-orm/postgres-js/migrator') as typeof migrator;
