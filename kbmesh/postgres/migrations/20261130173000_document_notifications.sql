-- migrate:up

-- Tells who listens on kbmesh_documents what to read again, when the change has committed: '<kb_id> <document_id>'
-- of a document that came, changed or went, '<kb_id>' of a knowledge base that went.
CREATE FUNCTION notify_document() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('kbmesh_documents', coalesce(NEW.kb_id, OLD.kb_id) || ' ' || coalesce(NEW.id, OLD.id));
    RETURN NULL;
END
$$;
CREATE TRIGGER documents_notify AFTER INSERT OR UPDATE OR DELETE ON documents
    FOR EACH ROW EXECUTE FUNCTION notify_document();

CREATE FUNCTION notify_knowledge_base_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('kbmesh_documents', OLD.id::text);
    RETURN NULL;
END
$$;
CREATE TRIGGER knowledge_bases_notify AFTER DELETE ON knowledge_bases
    FOR EACH ROW EXECUTE FUNCTION notify_knowledge_base_deleted();

-- migrate:down

DROP TRIGGER knowledge_bases_notify ON knowledge_bases;
DROP TRIGGER documents_notify ON documents;
DROP FUNCTION notify_knowledge_base_deleted;
DROP FUNCTION notify_document;
