\restrict dbmate


SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: vector; Type: EXTENSION; Schema: -; Owner: -
--

CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;


--
-- Name: EXTENSION vector; Type: COMMENT; Schema: -; Owner: -
--

COMMENT ON EXTENSION vector IS 'vector data type and ivfflat and hnsw access methods';


--
-- Name: lexeme_weights(text[], double precision[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.lexeme_weights(lexemes text[], weights double precision[]) RETURNS public.sparsevec
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN (SELECT ((('{'::text || string_agg(((weighed.dimension || ':'::text) || weighed.weight), ','::text)) || '}/1000000000'::text))::public.sparsevec AS sparsevec FROM (SELECT (((hashtextextended(w.lexeme, (0)::bigint) & ('0111111111111111111111111111111111111111111111111111111111111111'::"bit")::bigint) % (1000000000)::bigint) + 1) AS dimension, (sum(w.weight))::real AS weight FROM UNNEST(lexeme_weights.lexemes, lexeme_weights.weights) w(lexeme, weight) GROUP BY (((hashtextextended(w.lexeme, (0)::bigint) & ('0111111111111111111111111111111111111111111111111111111111111111'::"bit")::bigint) % (1000000000)::bigint) + 1)) weighed);


--
-- Name: bm25_weights(tsvector); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.bm25_weights(words tsvector) RETURNS public.sparsevec
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN (SELECT public.lexeme_weights(array_agg(terms.lexeme), array_agg(((terms.tf * (2.2)::double precision) / (terms.tf + ((1.2)::double precision * ((0.25)::double precision + (((0.75)::double precision * terms.length) / (100)::double precision))))))) AS lexeme_weights FROM (SELECT counted.lexeme, counted.tf, sum(counted.tf) OVER () AS length FROM (SELECT unnest.lexeme, (COALESCE(cardinality(unnest.positions), 1))::double precision AS tf FROM unnest(bm25_weights.words) unnest(lexeme, positions, weights)) counted) terms);


--
-- Name: complete_generation(text); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.complete_generation(of_kind text) RETURNS boolean
    LANGUAGE plpgsql
    AS $_$
DECLARE
    this generations;
    vectors text;
BEGIN
    SELECT * INTO this FROM generations WHERE kind = of_kind FOR UPDATE;
    IF NOT FOUND OR this.record_count IS NULL OR this.newest = this.live THEN
        RETURN false;
    END IF;
    IF this.record_count > (SELECT count(*) FROM records WHERE kind = of_kind AND generation = this.newest) THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM records
               WHERE kind = of_kind AND generation = this.newest AND embedded_count < chunk_count)
       AND EXISTS (SELECT FROM records WHERE kind = of_kind AND live_revision IS NOT NULL) THEN
        RETURN false;
    END IF;

    PERFORM FROM records WHERE kind = of_kind ORDER BY source_id FOR UPDATE;
    DELETE FROM chunks c USING records r
    WHERE r.kind = of_kind AND (c.kind, c.source_id) = (r.kind, r.source_id)
      AND (r.generation <> this.newest OR c.revision <> r.revision);
    UPDATE records
    SET live_revision = NULL, content_sha256 = decode(repeat('00', 32), 'hex'), chunk_count = 0, embedded_count = 0,
        deleted_at = now(), updated_at = now()
    WHERE kind = of_kind AND generation <> this.newest AND deleted_at IS NULL;
    UPDATE records SET live_revision = revision, updated_at = now()
    WHERE kind = of_kind AND generation = this.newest AND deleted_at IS NULL
      AND live_revision IS DISTINCT FROM revision;
    UPDATE chunks SET live = true WHERE kind = of_kind AND NOT live;
    FOR vectors IN SELECT table_name FROM embedding_spaces LOOP
        EXECUTE format('UPDATE %I v SET live = true FROM chunks c
                        WHERE c.kind = $1 AND v.chunk_id = c.id AND NOT v.live', vectors) USING of_kind;
    END LOOP;
    UPDATE generations SET live = newest WHERE kind = of_kind;
    RETURN true;
END
$_$;


--
-- Name: keyword_lexemes(text); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.keyword_lexemes(content text) RETURNS tsvector
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN (SELECT (to_tsvector('english'::regconfig, translate(spaced.spaced, '-_.'::text, '   '::text)) || array_to_tsvector(ARRAY(SELECT joined.joined[1] AS joined FROM unnest(ARRAY['[^\s._-]+(?:[_-]+[^\s._-]+)+'::text, '[^\s._-]+(?:[._-]+[^\s._-]+)+'::text]) pattern(pattern), LATERAL regexp_matches(lower(spaced.spaced), pattern.pattern, 'g'::text) joined(joined) WHERE (char_length(joined.joined[1]) <= 255)))) FROM regexp_replace(keyword_lexemes.content, '[!-,/:-@[-^`{-~\u00a0-\u00bf\u2000-\u206f\u3000-\u303f]+'::text, ' '::text, 'g'::text) spaced(spaced));


--
-- Name: notify_document(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.notify_document() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_notify('kbmesh_documents', coalesce(NEW.kb_id, OLD.kb_id) || ' ' || coalesce(NEW.id, OLD.id));
    RETURN NULL;
END
$$;


--
-- Name: notify_knowledge_base_deleted(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.notify_knowledge_base_deleted() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_notify('kbmesh_documents', OLD.id::text);
    RETURN NULL;
END
$$;


--
-- Name: notify_outbox(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.notify_outbox() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_notify('kbmesh_outbox', '');
    RETURN NULL;
END
$$;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: channels; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.channels (
    id text NOT NULL,
    settings jsonb DEFAULT '{"kb_ids": []}'::jsonb NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    owner_type text NOT NULL,
    owner_id uuid NOT NULL,
    CONSTRAINT channels_id_check CHECK (((char_length(id) >= 1) AND (char_length(id) <= 200))),
    CONSTRAINT channels_owner_type_check CHECK ((owner_type = ANY (ARRAY['user'::text, 'team'::text])))
);


--
-- Name: chunks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.chunks (
    id uuid NOT NULL,
    kind text NOT NULL,
    source_id text NOT NULL,
    kb_id uuid,
    document_id uuid,
    revision bigint NOT NULL,
    ordinal integer NOT NULL,
    content text NOT NULL,
    content_sha256 bytea NOT NULL,
    token_count integer NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    tier text NOT NULL,
    valid_until timestamp with time zone,
    live boolean NOT NULL,
    header text DEFAULT ''::text NOT NULL,
    tsv tsvector GENERATED ALWAYS AS (public.keyword_lexemes(content)) STORED NOT NULL,
    bm25 public.sparsevec GENERATED ALWAYS AS (public.bm25_weights(public.keyword_lexemes(content))) STORED,
    CONSTRAINT chunks_check CHECK (((kind = 'document_chunk'::text) = (document_id IS NOT NULL))),
    CONSTRAINT chunks_check1 CHECK (((document_id IS NULL) = (kb_id IS NULL))),
    CONSTRAINT chunks_content_sha256_check CHECK ((octet_length(content_sha256) = 32)),
    CONSTRAINT chunks_tier_check CHECK ((tier = ANY (ARRAY['CustomerFact'::text, 'PlatformBestPractice'::text, 'IndustryBenchmark'::text, 'AdvisoryGuidance'::text]))),
    CONSTRAINT chunks_token_count_check CHECK ((token_count > 0))
);
ALTER TABLE ONLY public.chunks ALTER COLUMN bm25 SET STORAGE MAIN;


--
-- Name: documents; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.documents (
    id uuid NOT NULL,
    kb_id uuid NOT NULL,
    filename text NOT NULL,
    content_type text NOT NULL,
    category text NOT NULL,
    size_bytes bigint NOT NULL,
    content_sha256 bytea NOT NULL,
    storage_key text NOT NULL,
    uploader uuid NOT NULL,
    source_priority text,
    status text DEFAULT 'pending'::text NOT NULL,
    error_code text,
    error_detail text,
    revision bigint DEFAULT 1 NOT NULL,
    live_revision bigint,
    chunk_count integer DEFAULT 0 NOT NULL,
    embedded_count integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT documents_category_check CHECK ((category = ANY (ARRAY['strategy'::text, 'data_dictionary'::text, 'governance_policy'::text, 'architecture'::text, 'other'::text]))),
    CONSTRAINT documents_check CHECK ((live_revision <= revision)),
    CONSTRAINT documents_check1 CHECK ((embedded_count <= chunk_count)),
    CONSTRAINT documents_check2 CHECK (((status = 'failed'::text) = (error_code IS NOT NULL))),
    CONSTRAINT documents_content_sha256_check CHECK ((octet_length(content_sha256) = 32)),
    CONSTRAINT documents_filename_check CHECK (((char_length(filename) >= 1) AND (char_length(filename) <= 255))),
    CONSTRAINT documents_metadata_check CHECK ((jsonb_typeof(metadata) = 'object'::text)),
    CONSTRAINT documents_revision_check CHECK ((revision > 0)),
    CONSTRAINT documents_size_bytes_check CHECK ((size_bytes > 0)),
    CONSTRAINT documents_source_priority_check CHECK ((source_priority = ANY (ARRAY['CustomerFact'::text, 'PlatformBestPractice'::text, 'IndustryBenchmark'::text, 'AdvisoryGuidance'::text]))),
    CONSTRAINT documents_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'processing'::text, 'embedding'::text, 'ready'::text, 'empty'::text, 'failed'::text])))
);


--
-- Name: embedding_spaces; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.embedding_spaces (
    id text NOT NULL,
    model text NOT NULL,
    dimensions integer NOT NULL,
    status text NOT NULL,
    table_name text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    seeded_to uuid,
    seeded boolean DEFAULT false NOT NULL,
    indexed boolean DEFAULT false NOT NULL,
    activated_at timestamp with time zone,
    retired_at timestamp with time zone,
    probe real[],
    CONSTRAINT embedding_spaces_check CHECK ((table_name = ('vectors_'::text || id))),
    CONSTRAINT embedding_spaces_dimensions_check CHECK (((dimensions >= 1) AND (dimensions <= 4000))),
    CONSTRAINT embedding_spaces_id_check CHECK ((id ~ '^[a-z][a-z0-9_]{0,47}$'::text)),
    CONSTRAINT embedding_spaces_status_check CHECK ((status = ANY (ARRAY['building'::text, 'active'::text, 'retired'::text])))
);


--
-- Name: generations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.generations (
    kind text NOT NULL,
    newest bigint NOT NULL,
    record_count integer,
    live bigint DEFAULT 0 NOT NULL,
    CONSTRAINT generations_check CHECK ((live <= newest)),
    CONSTRAINT generations_newest_check CHECK ((newest > 0)),
    CONSTRAINT generations_record_count_check CHECK ((record_count >= 0))
);


--
-- Name: idempotency_keys; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.idempotency_keys (
    caller uuid NOT NULL,
    key text NOT NULL,
    fingerprint bytea NOT NULL,
    document_id uuid NOT NULL,
    revision bigint NOT NULL,
    changed boolean NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT idempotency_keys_fingerprint_check CHECK ((octet_length(fingerprint) = 32)),
    CONSTRAINT idempotency_keys_key_check CHECK (((char_length(key) >= 1) AND (char_length(key) <= 255)))
);


--
-- Name: knowledge_bases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.knowledge_bases (
    id uuid NOT NULL,
    owner_type text NOT NULL,
    owner_id uuid NOT NULL,
    name text NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    is_default boolean DEFAULT false NOT NULL,
    CONSTRAINT knowledge_bases_check CHECK (((owner_type = 'user'::text) OR (NOT is_default))),
    CONSTRAINT knowledge_bases_description_check CHECK ((char_length(description) <= 2000)),
    CONSTRAINT knowledge_bases_name_check CHECK (((char_length(name) >= 1) AND (char_length(name) <= 200))),
    CONSTRAINT knowledge_bases_owner_type_check CHECK ((owner_type = ANY (ARRAY['user'::text, 'team'::text])))
);


--
-- Name: outbox; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.outbox (
    id bigint NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    headers jsonb NOT NULL,
    payload bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    published_at timestamp with time zone
);


--
-- Name: outbox_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

ALTER TABLE public.outbox ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.outbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: records; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.records (
    kind text NOT NULL,
    source_id text NOT NULL,
    revision bigint NOT NULL,
    live_revision bigint,
    content_sha256 bytea NOT NULL,
    chunk_count integer DEFAULT 0 NOT NULL,
    embedded_count integer DEFAULT 0 NOT NULL,
    deleted_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    generation bigint DEFAULT 0 NOT NULL,
    CONSTRAINT records_check CHECK ((live_revision <= revision)),
    CONSTRAINT records_check1 CHECK ((embedded_count <= chunk_count)),
    CONSTRAINT records_content_sha256_check CHECK ((octet_length(content_sha256) = 32)),
    CONSTRAINT records_source_id_check CHECK (((char_length(source_id) >= 1) AND (char_length(source_id) <= 512)))
);


--
-- Name: schema_migrations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.schema_migrations (
    version character varying NOT NULL
);


--
-- Name: skill_versions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.skill_versions (
    skill_id uuid NOT NULL,
    version integer NOT NULL,
    goal text NOT NULL,
    template text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT skill_versions_version_check CHECK ((version > 0))
);


--
-- Name: skills; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.skills (
    id uuid NOT NULL,
    owner_type text,
    owner_id uuid,
    name text NOT NULL,
    description text NOT NULL,
    origin text DEFAULT 'local'::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT skills_check CHECK (((owner_type IS NULL) = (owner_id IS NULL))),
    CONSTRAINT skills_name_check CHECK (((char_length(name) >= 1) AND (char_length(name) <= 200))),
    CONSTRAINT skills_owner_type_check CHECK ((owner_type = ANY (ARRAY['user'::text, 'team'::text])))
);


--
-- Name: space_backlog; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.space_backlog (
    space_id text NOT NULL,
    chunk_id uuid NOT NULL,
    leased_until timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    failures smallint DEFAULT 0 NOT NULL
);


--
-- Name: webhook_deliveries; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.webhook_deliveries (
    id uuid NOT NULL,
    webhook_id uuid NOT NULL,
    event_id text NOT NULL,
    body text NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    attempted_at timestamp with time zone,
    response_code integer,
    error text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT webhook_deliveries_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'delivered'::text, 'failed'::text])))
);


--
-- Name: webhooks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.webhooks (
    id uuid NOT NULL,
    user_id uuid NOT NULL,
    teams uuid[] NOT NULL,
    endpoint text NOT NULL,
    secret bytea NOT NULL,
    statuses text[] NOT NULL,
    kb_ids uuid[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    old_secrets bytea[] DEFAULT '{}'::bytea[] NOT NULL,
    rotated_at timestamp with time zone,
    disabled_at timestamp with time zone,
    CONSTRAINT webhooks_endpoint_check CHECK (((char_length(endpoint) >= 1) AND (char_length(endpoint) <= 2000))),
    CONSTRAINT webhooks_secret_check CHECK ((octet_length(secret) = 32))
);


--
-- Name: channels channels_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.channels
    ADD CONSTRAINT channels_pkey PRIMARY KEY (owner_type, owner_id, id);


--
-- Name: chunks chunks_kind_source_id_revision_ordinal_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_kind_source_id_revision_ordinal_key UNIQUE (kind, source_id, revision, ordinal);


--
-- Name: chunks chunks_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_pkey PRIMARY KEY (id);


--
-- Name: documents documents_kb_id_filename_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_kb_id_filename_key UNIQUE (kb_id, filename);


--
-- Name: documents documents_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_pkey PRIMARY KEY (id);


--
-- Name: documents documents_storage_key_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_storage_key_key UNIQUE (storage_key);


--
-- Name: embedding_spaces embedding_spaces_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.embedding_spaces
    ADD CONSTRAINT embedding_spaces_pkey PRIMARY KEY (id);


--
-- Name: embedding_spaces embedding_spaces_table_name_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.embedding_spaces
    ADD CONSTRAINT embedding_spaces_table_name_key UNIQUE (table_name);


--
-- Name: generations generations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.generations
    ADD CONSTRAINT generations_pkey PRIMARY KEY (kind);


--
-- Name: idempotency_keys idempotency_keys_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (caller, key);


--
-- Name: knowledge_bases knowledge_bases_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.knowledge_bases
    ADD CONSTRAINT knowledge_bases_pkey PRIMARY KEY (id);


--
-- Name: outbox outbox_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (id);


--
-- Name: records records_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.records
    ADD CONSTRAINT records_pkey PRIMARY KEY (kind, source_id);


--
-- Name: schema_migrations schema_migrations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);


--
-- Name: skill_versions skill_versions_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.skill_versions
    ADD CONSTRAINT skill_versions_pkey PRIMARY KEY (skill_id, version);


--
-- Name: skills skills_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.skills
    ADD CONSTRAINT skills_pkey PRIMARY KEY (id);


--
-- Name: space_backlog space_backlog_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.space_backlog
    ADD CONSTRAINT space_backlog_pkey PRIMARY KEY (space_id, chunk_id);


--
-- Name: webhook_deliveries webhook_deliveries_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.webhook_deliveries
    ADD CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (id);


--
-- Name: webhook_deliveries webhook_deliveries_webhook_id_event_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.webhook_deliveries
    ADD CONSTRAINT webhook_deliveries_webhook_id_event_id_key UNIQUE (webhook_id, event_id);


--
-- Name: webhooks webhooks_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.webhooks
    ADD CONSTRAINT webhooks_pkey PRIMARY KEY (id);


--
-- Name: chunks_document; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX chunks_document ON public.chunks USING btree (document_id);


--
-- Name: chunks_kb; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX chunks_kb ON public.chunks USING btree (kb_id) WHERE live;


--
-- Name: chunks_texts; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX chunks_texts ON public.chunks USING btree (source_id, content_sha256);


--
-- Name: chunks_tsv; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX chunks_tsv ON public.chunks USING gin (tsv) WHERE live;


--
-- Name: documents_chunk_counts; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX documents_chunk_counts ON public.documents USING btree (kb_id) INCLUDE (chunk_count);


--
-- Name: documents_listing; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX documents_listing ON public.documents USING btree (kb_id, created_at, id);


--
-- Name: embedding_spaces_one_active; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX embedding_spaces_one_active ON public.embedding_spaces USING btree (status) WHERE (status = 'active'::text);


--
-- Name: idempotency_keys_age; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX idempotency_keys_age ON public.idempotency_keys USING btree (created_at);


--
-- Name: knowledge_bases_default; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX knowledge_bases_default ON public.knowledge_bases USING btree (owner_id) WHERE is_default;


--
-- Name: knowledge_bases_owner; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX knowledge_bases_owner ON public.knowledge_bases USING btree (owner_type, owner_id, created_at, id);


--
-- Name: outbox_published; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX outbox_published ON public.outbox USING btree (published_at) WHERE (published_at IS NOT NULL);


--
-- Name: outbox_unpublished; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX outbox_unpublished ON public.outbox USING btree (id) WHERE (published_at IS NULL);


--
-- Name: space_backlog_chunk; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX space_backlog_chunk ON public.space_backlog USING btree (chunk_id);


--
-- Name: webhook_deliveries_due; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX webhook_deliveries_due ON public.webhook_deliveries USING btree (webhook_id, due_at) WHERE (status = 'pending'::text);


--
-- Name: webhook_deliveries_log; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX webhook_deliveries_log ON public.webhook_deliveries USING btree (webhook_id, created_at, id);


--
-- Name: webhooks_user; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX webhooks_user ON public.webhooks USING btree (user_id, created_at, id);


--
-- Name: documents documents_notify; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER documents_notify AFTER INSERT OR DELETE OR UPDATE ON public.documents FOR EACH ROW EXECUTE FUNCTION public.notify_document();


--
-- Name: knowledge_bases knowledge_bases_notify; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER knowledge_bases_notify AFTER DELETE ON public.knowledge_bases FOR EACH ROW EXECUTE FUNCTION public.notify_knowledge_base_deleted();


--
-- Name: outbox outbox_notify; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER outbox_notify AFTER INSERT ON public.outbox FOR EACH STATEMENT EXECUTE FUNCTION public.notify_outbox();


--
-- Name: chunks chunks_document_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.documents(id) ON DELETE CASCADE;


--
-- Name: chunks chunks_kb_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_kb_id_fkey FOREIGN KEY (kb_id) REFERENCES public.knowledge_bases(id) ON DELETE CASCADE;


--
-- Name: documents documents_kb_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_kb_id_fkey FOREIGN KEY (kb_id) REFERENCES public.knowledge_bases(id) ON DELETE CASCADE;


--
-- Name: skill_versions skill_versions_skill_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.skill_versions
    ADD CONSTRAINT skill_versions_skill_id_fkey FOREIGN KEY (skill_id) REFERENCES public.skills(id) ON DELETE CASCADE;


--
-- Name: space_backlog space_backlog_chunk_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.space_backlog
    ADD CONSTRAINT space_backlog_chunk_id_fkey FOREIGN KEY (chunk_id) REFERENCES public.chunks(id) ON DELETE CASCADE;


--
-- Name: space_backlog space_backlog_space_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.space_backlog
    ADD CONSTRAINT space_backlog_space_id_fkey FOREIGN KEY (space_id) REFERENCES public.embedding_spaces(id) ON DELETE CASCADE;


--
-- Name: webhook_deliveries webhook_deliveries_webhook_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.webhook_deliveries
    ADD CONSTRAINT webhook_deliveries_webhook_id_fkey FOREIGN KEY (webhook_id) REFERENCES public.webhooks(id) ON DELETE CASCADE;


--
-- PostgreSQL database dump complete
--

\unrestrict dbmate


--
-- Dbmate schema migrations
--

INSERT INTO public.schema_migrations (version) VALUES
    ('20261130150000'),
    ('20261130171000'),
    ('20261130171001'),
    ('20261130172000'),
    ('20261130172001'),
    ('20261130173000'),
    ('20261130173100'),
    ('20261130181000'),
    ('20261130182000'),
    ('20261130183000'),
    ('20261130190000'),
    ('20261130200000'),
    ('20261201000100'),
    ('20261201000400');
