package statement

// verdict is what calling a built-in function, casting to a built-in type or
// naming a word of the grammar means for the text it stands in.
type verdict uint8

const (
	vNone        verdict = iota // not a built-in name
	vHoldable                   // IMMUTABLE, or STABLE and settled by session settings alone
	vStable                     // STABLE, depends on more than session settings
	vTime                       // the answer moves with the clock
	vUser                       // the answer depends on who asks and where
	vSystem                     // looks a name up in the catalog, or depends on the server's build
	vCatalog                    // private: reads the catalog or the server's state
	vSession                    // private: answers for one session
	vVolatile                   // private: VOLATILE, but neither writes nor leaves a trace in the session
	vTaints                     // private: VOLATILE and changes the session
	vWrites                     // private: VOLATILE and writes
	vAnything                   // private: VOLATILE or runs SQL that it is given
	vHiddenReads                // private: reads tables that the text does not name, and runs what their views run
)

var verdicts = [...]struct {
	class          Class
	cause          string
	how            string // completes "calls f, which "
	writes, taints bool
}{
	vNone:        {Private, CauseUnknownFunction, "is not built in", true, true},
	vHoldable:    {class: Holdable},
	vStable:      {Joinable, CauseStable, "depends on more than the session's settings", false, false},
	vTime:        {Joinable, CauseTime, "depends on the time", false, false},
	vUser:        {Joinable, CauseSession, "depends on the session", false, false},
	vSystem:      {Joinable, CauseCatalog, "depends on the system catalog", false, false},
	vCatalog:     {Private, CauseCatalog, "reads the system catalog or the server's state", false, false},
	vSession:     {Private, CauseSession, "answers for one session", false, false},
	vVolatile:    {Private, CauseVolatile, "is VOLATILE", false, false},
	vTaints:      {Private, CauseVolatile, "is VOLATILE", false, true},
	vWrites:      {Private, CauseVolatile, "is VOLATILE", true, false},
	vAnything:    {Private, CauseVolatile, "is VOLATILE", true, true},
	vHiddenReads: {Private, CauseVolatile, "reads tables that the text does not name", true, true},
}

// The lists below sort the built-in functions that their volatility alone
// does not settle. What is in none of them is holdable if IMMUTABLE, joinable
// if STABLE, and may do anything if VOLATILE. A name stands for all its
// overloads.

// holdableFunctions are STABLE because they read settings of the session
// (TimeZone, DateStyle, IntervalStyle, lc_*, xmloption,
// default_text_search_config, …), or objects that only DDL changes and DDL is
// a write (text search configurations, enum types, conversions).
const holdableFunctions = "" +
	"anytextcat textanycat concat concat_ws format quote_literal quote_nullable length " +
	"array_to_string array_to_json row_to_json to_json to_jsonb " +
	"json_agg jsonb_agg json_object_agg jsonb_object_agg " +
	"json_build_array json_build_object jsonb_build_array jsonb_build_object " +
	"json_populate_record json_populate_recordset jsonb_populate_record jsonb_populate_recordset " +
	"json_to_record json_to_recordset jsonb_to_record jsonb_to_recordset " +
	"jsonb_path_exists_tz jsonb_path_match_tz jsonb_path_query_array_tz jsonb_path_query_first_tz jsonb_path_query_tz " +
	"json_to_tsvector jsonb_to_tsvector to_tsvector to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery " +
	"ts_headline ts_match_tq ts_match_tt " +
	"convert convert_from convert_to money numeric xml xml_is_well_formed " +
	"enum_first enum_last enum_range " +
	"to_char to_date to_number to_timestamp date_trunc date_part extract timezone overlaps in_range " +
	"make_timestamptz generate_series date time timestamp timestamptz " +
	"date_cmp_timestamptz date_eq_timestamptz date_ge_timestamptz date_gt_timestamptz " +
	"date_le_timestamptz date_lt_timestamptz date_ne_timestamptz " +
	"timestamp_cmp_timestamptz timestamp_eq_timestamptz timestamp_ge_timestamptz timestamp_gt_timestamptz " +
	"timestamp_le_timestamptz timestamp_lt_timestamptz timestamp_ne_timestamptz " +
	"timestamptz_cmp_date timestamptz_eq_date timestamptz_ge_date timestamptz_gt_date " +
	"timestamptz_le_date timestamptz_lt_date timestamptz_ne_date " +
	"timestamptz_cmp_timestamp timestamptz_eq_timestamp timestamptz_ge_timestamp timestamptz_gt_timestamp " +
	"timestamptz_le_timestamp timestamptz_lt_timestamp timestamptz_ne_timestamp " +
	"timestamptz_pl_interval timestamptz_mi_interval interval_pl_timestamptz "

// timeFunctions move with the clock. age has an overload that takes the
// current date; a time without date becomes a timetz by today's offset; the
// lists of time zones show today's offsets.
const timeFunctions = "" +
	"now transaction_timestamp statement_timestamp age timetz timetz_in date_in time_in timestamp_in timestamptz_in " +
	"pg_timezone_names pg_timezone_abbrevs "

// userFunctions depend on who asks and in which database.
const userFunctions = "current_user session_user getpgusername current_database current_schema current_schemas "

// systemFunctions change only with DDL or with a restart of the server, but
// DDL elsewhere may change what they say of an unchanged row.
const systemFunctions = "" +
	"regclass version pg_typeof pg_collation_for pg_client_encoding getdatabaseencoding get_current_ts_config " +
	"pg_char_to_encoding pg_encoding_to_char pg_get_keywords pg_postmaster_start_time "

// sessionFunctions answer for the session or the transaction that asks.
const sessionFunctions = "" +
	"current_setting currval lastval current_query pg_backend_pid pg_my_temp_schema pg_is_other_temp_schema " +
	"txid_current txid_current_if_assigned txid_current_snapshot " +
	"pg_current_xact_id pg_current_xact_id_if_assigned pg_current_snapshot " +
	"inet_client_addr inet_client_port inet_server_addr inet_server_port " +
	"pg_cursor pg_prepared_statement pg_listening_channels pg_trigger_depth pg_conf_load_time " +
	"pg_show_all_settings pg_settings_get_flags pg_stat_get_snapshot_timestamp row_security_active " +
	"pg_event_trigger_ddl_commands pg_event_trigger_dropped_objects " +
	"pg_event_trigger_table_rewrite_oid pg_event_trigger_table_rewrite_reason "

// catalogFunctions read the catalog, or the state of the server, or call code
// named by an argument (the type whose input function is called, the function
// that is validated). Every other function called pg_… is treated like them,
// but for those in pureCatalogNames.
const catalogFunctions = "" +
	"to_regclass to_regcollation to_regnamespace to_regoper to_regoperator to_regproc to_regprocedure to_regrole to_regtype " +
	"obj_description col_description shobj_description format_type oidvectortypes mxid_age aclexplode " +
	"has_any_column_privilege has_column_privilege has_database_privilege has_foreign_data_wrapper_privilege " +
	"has_function_privilege has_language_privilege has_parameter_privilege has_schema_privilege has_sequence_privilege " +
	"has_server_privilege has_table_privilege has_tablespace_privilege has_type_privilege " +
	"ts_debug ts_parse ts_token_type " +
	"array_in array_recv domain_in domain_recv enum_in enum_recv record_in record_recv range_in range_recv " +
	"multirange_in multirange_recv anyrange_in anymultirange_in anycompatiblerange_in anycompatiblemultirange_in " +
	"fmgr_c_validator fmgr_internal_validator fmgr_sql_validator "

// pureCatalogNames are called pg_… and yet depend on their arguments alone.
const pureCatalogNames = "" +
	"pg_lsn pg_size_bytes pg_size_pretty pg_snapshot_xip pg_snapshot_xmax pg_snapshot_xmin pg_visible_in_snapshot " +
	"pg_wal_lsn_diff pg_encoding_max_length "

// storedSizeFunctions depend on how a row is stored; VACUUM FULL may change it.
const storedSizeFunctions = "pg_column_size pg_column_compression "

// jsonFunctions are built by the grammar of PostgreSQL 16 and 17 and are in no
// server's pg_proc, but for json_object. What they answer depends on session
// settings alone.
const jsonFunctions = "" +
	"json json_array json_arrayagg json_exists json_object json_objectagg json_query json_scalar json_serialize " +
	"json_table json_value "

// newerFunctions are harmless too, and newer than PostgreSQL 15.
const newerFunctions = "array_sample array_shuffle merge_action random_normal uuidv4 uuidv7 "

// harmlessFunctions are VOLATILE, but leave no trace in what other sessions
// read nor in their own session. The effects that some have all the same (a
// sequence moves, a backend stops, a message goes out) are seen by no read
// that may be shared.
const harmlessFunctions = "" +
	"random gen_random_uuid clock_timestamp timeofday pg_sleep pg_sleep_for pg_sleep_until nextval pg_notify " +
	"pg_advisory_xact_lock pg_advisory_xact_lock_shared pg_try_advisory_xact_lock pg_try_advisory_xact_lock_shared " +
	"pg_cancel_backend pg_terminate_backend pg_blocking_pids pg_safe_snapshot_blocking_pids " +
	"pg_isolation_test_session_is_blocked pg_log_backend_memory_contexts " +
	"pg_is_in_recovery pg_is_wal_replay_paused pg_get_wal_replay_pause_state pg_get_wal_resource_managers " +
	"pg_current_wal_flush_lsn pg_current_wal_insert_lsn pg_current_wal_lsn pg_last_wal_receive_lsn pg_last_wal_replay_lsn " +
	"pg_last_xact_replay_timestamp pg_last_committed_xact pg_xact_status txid_status " +
	"pg_xact_commit_timestamp pg_xact_commit_timestamp_origin " +
	"pg_relation_size pg_table_size pg_total_relation_size pg_indexes_size pg_database_size pg_tablespace_size " +
	"pg_stat_file pg_read_file pg_read_binary_file pg_read_file_old pg_current_logfile " +
	"pg_ls_archive_statusdir pg_ls_dir pg_ls_logdir pg_ls_logicalmapdir pg_ls_logicalsnapdir pg_ls_replslotdir " +
	"pg_ls_tmpdir pg_ls_waldir pg_lock_status pg_prepared_xact pg_notification_queue_usage pg_jit_available " +
	"pg_control_checkpoint pg_control_init pg_control_recovery pg_control_system " +
	"pg_get_multixact_members pg_get_shmem_allocations pg_get_backend_memory_contexts " +
	"pg_partition_tree pg_partition_ancestors pg_sequence_last_value " +
	"pg_hba_file_rules pg_ident_file_mappings pg_show_all_file_settings pg_show_replication_origin_status " +
	"pg_collation_actual_version pg_database_collation_actual_version amvalidate currtid2 bernoulli system " +
	"pg_logical_slot_peek_changes pg_logical_slot_peek_binary_changes pg_export_snapshot " +
	"pg_stat_get_recovery_prefetch pg_stat_have_stats pg_stat_get_xact_blocks_fetched pg_stat_get_xact_blocks_hit " +
	"pg_stat_get_xact_function_calls pg_stat_get_xact_function_self_time pg_stat_get_xact_function_total_time " +
	"pg_stat_get_xact_numscans pg_stat_get_xact_tuples_deleted pg_stat_get_xact_tuples_fetched " +
	"pg_stat_get_xact_tuples_hot_updated pg_stat_get_xact_tuples_inserted pg_stat_get_xact_tuples_returned " +
	"pg_stat_get_xact_tuples_updated "

// taintingFunctions are VOLATILE and change their session and nothing else.
const taintingFunctions = "" +
	"set_config setseed pg_advisory_lock pg_advisory_lock_shared pg_try_advisory_lock pg_try_advisory_lock_shared " +
	"pg_advisory_unlock pg_advisory_unlock_shared pg_advisory_unlock_all "

// writingFunctions are VOLATILE and write, but leave their session as it was.
const writingFunctions = "" +
	"setval lo_close lo_creat lo_create lo_export lo_from_bytea lo_get lo_import lo_lseek lo_lseek64 lo_open lo_put " +
	"lo_tell lo_tell64 lo_truncate lo_truncate64 lo_unlink loread lowrite "

// hiddenReads run SQL that they are given, or read tables, and so views and
// the functions in them, that the text does not name.
const hiddenReads = "" +
	"query_to_xml query_to_xml_and_xmlschema query_to_xmlschema cursor_to_xml cursor_to_xmlschema ts_stat ts_rewrite " +
	"table_to_xml table_to_xmlschema table_to_xml_and_xmlschema schema_to_xml schema_to_xmlschema schema_to_xml_and_xmlschema " +
	"database_to_xml database_to_xmlschema database_to_xml_and_xmlschema "

// lists is in order: a later one overrules an earlier one.
var lists = []struct {
	names string
	v     verdict
}{
	{holdableFunctions, vHoldable},
	{timeFunctions, vTime},
	{userFunctions, vUser},
	{systemFunctions, vSystem},
	{storedSizeFunctions, vStable},
	{sessionFunctions, vSession},
	{catalogFunctions, vCatalog},
	{harmlessFunctions, vVolatile},
	{newerFunctions, vVolatile},
	{taintingFunctions, vTaints},
	{writingFunctions, vWrites},
	{hiddenReads, vHiddenReads},
}

// grammarTypes are type names that only the grammar knows; quoted, they are
// names like any other.
const grammarTypes = "" +
	"bigint boolean char character dec decimal float int integer interval national nchar numeric real smallint time timestamp varchar bit "

// catalogTypes are built-in types whose input reads more than session
// settings: a name is looked up in the catalog, or an offset by today's date.
const catalogTypes = "" +
	"regclass regcollation regnamespace regoper regoperator regproc regprocedure regrole regtype aclitem " +
	"_regclass _regcollation _regnamespace _regoper _regoperator _regproc _regprocedure _regrole _regtype _aclitem "

// timeTypes take today's offset when they are read from a time without zone.
const timeTypes = "timetz _timetz "

// systemColumns change without a write: a row lock sets xmax, VACUUM FULL and
// CLUSTER move rows.
const systemColumns = "ctid xmax cmin cmax "
