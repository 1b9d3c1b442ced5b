CREATE SEQUENCE "public"."resource_lease_ticket" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1;--> statement-breakpoint
CREATE TABLE "resource_lease_terms" (
	"resource" text COLLATE "C" NOT NULL,
	"fence" bigint NOT NULL,
	"holder" text NOT NULL,
	"token_hash" "bytea" NOT NULL,
	"granted_at" timestamp with time zone NOT NULL,
	"renewed_at" timestamp with time zone,
	"renewals" integer NOT NULL,
	"confirmed_at" timestamp with time zone,
	"data" jsonb,
	"ended_at" timestamp with time zone NOT NULL,
	"ended_as" text NOT NULL,
	"ended_by" text,
	CONSTRAINT "resource_lease_terms_resource_fence_pk" PRIMARY KEY("resource","fence"),
	CONSTRAINT "resource_lease_terms_end" CHECK ("resource_lease_terms"."ended_at" >= "resource_lease_terms"."granted_at" and "resource_lease_terms"."ended_as" in ('released', 'expired', 'recovered', 'broken'))
);
--> statement-breakpoint
CREATE TABLE "resource_lease_tickets" (
	"resource" text COLLATE "C" NOT NULL,
	"ticket" bigint NOT NULL,
	"priority" integer NOT NULL,
	"seen_at" timestamp with time zone NOT NULL,
	CONSTRAINT "resource_lease_tickets_resource_ticket_pk" PRIMARY KEY("resource","ticket")
);
--> statement-breakpoint
CREATE TABLE "resource_leases" (
	"resource" text COLLATE "C" PRIMARY KEY NOT NULL,
	"fence" bigint DEFAULT 0 NOT NULL,
	"status" text DEFAULT 'free' NOT NULL,
	"holder" text,
	"token_hash" "bytea",
	"granted_at" timestamp with time zone,
	"renewed_at" timestamp with time zone,
	"renewals" integer DEFAULT 0 NOT NULL,
	"ends_at" timestamp with time zone,
	"free_at" timestamp with time zone,
	"lifetime_ends_at" timestamp with time zone,
	"break_at" timestamp with time zone,
	"broken_by" text,
	"recover_at" timestamp with time zone,
	"ttl_ms" bigint,
	"lock_delay_ms" bigint,
	"grace_ms" bigint,
	"soft_ttl_ms" bigint,
	"confirmed_at" timestamp with time zone,
	"data" jsonb,
	"due_at" timestamp with time zone,
	"updated_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "resource_leases_resource" CHECK (octet_length("resource_leases"."resource") between 1 and 256),
	CONSTRAINT "resource_leases_term" CHECK (case "resource_leases"."status"
        when 'free' then "resource_leases"."fence" = 0 and "resource_leases"."ends_at" is null and "resource_leases"."due_at" is null
        when 'active' then num_nulls("resource_leases"."ends_at", "resource_leases"."free_at", "resource_leases"."due_at") = 0 and "resource_leases"."confirmed_at" is null
        when 'confirmed' then "resource_leases"."confirmed_at" is not null and num_nulls("resource_leases"."ends_at", "resource_leases"."free_at", "resource_leases"."due_at") in (0, 3)
        else "resource_leases"."ends_at" is not null and "resource_leases"."due_at" is null and "resource_leases"."status" in ('released', 'expired', 'recovered', 'broken')
        end and ("resource_leases"."fence" = 0 or num_nulls("resource_leases"."holder", "resource_leases"."token_hash", "resource_leases"."granted_at", "resource_leases"."ttl_ms") = 0)
        and ("resource_leases"."ends_at" is null or "resource_leases"."ends_at" >= "resource_leases"."granted_at") and ("resource_leases"."free_at" is null or "resource_leases"."free_at" >= "resource_leases"."ends_at"))
);
--> statement-breakpoint
CREATE INDEX "resource_lease_tickets_by_ticket" ON "resource_lease_tickets" USING btree ("ticket");--> statement-breakpoint
CREATE INDEX "resource_leases_due" ON "resource_leases" USING btree ("due_at") WHERE "resource_leases"."due_at" is not null;
--> statement-breakpoint
-- Room for the renewals on the page; tickets are worth nothing after a crash, for their processes ask again.
ALTER TABLE "resource_leases" SET (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);
--> statement-breakpoint
ALTER TABLE "resource_lease_tickets" SET UNLOGGED;
