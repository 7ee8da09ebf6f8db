-- The role and the database of one job of several workers, with the least rights. As a superuser:
--
--     psql -v role=crawl -v database=portals -f scripts/postgres-role.sql
--
-- The role owns one schema in this database, and nothing else there. In other databases it has the rights of PUBLIC; pg_hba.conf
-- can keep it out of them. It may end its own sessions (pg_terminate_backend), which needs no further right. Give it a password:
--
--     ALTER ROLE crawl PASSWORD '...'

\set ON_ERROR_STOP on
CREATE ROLE :"role" LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION;
CREATE DATABASE :"database" ENCODING 'UTF8' TEMPLATE template0;
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"database" TO :"role";
\connect :"database"
REVOKE ALL ON SCHEMA public FROM PUBLIC;
CREATE SCHEMA crawl AUTHORIZATION :"role";
ALTER ROLE :"role" IN DATABASE :"database" SET search_path = crawl;
