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
	vCatalog                    // looks things up in the catalog or on the server
	vCode                       // runs code that an argument names: private where nothing is known of that
	vSession                    // private: answers for one session
	vState                      // private: reads the server's state, which moves by itself
	vVolatile                   // private: VOLATILE, but neither writes nor leaves a trace in the session
	vLocks                      // private: VOLATILE and may leave the session with other advisory locks
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
	vCatalog:     {Joinable, CauseCatalog, "looks things up in the system catalog", false, false},
	vCode:        {Joinable, CauseStable, "runs code that an argument names", false, false},
	vSession:     {Private, CauseSession, "answers for one session", false, false},
	vState:       {Private, CauseCatalog, "reads the server's state", false, false},
	vVolatile:    {Private, CauseVolatile, "is VOLATILE", false, false},
	vLocks:       {Private, CauseVolatile, "is VOLATILE", false, false},
	vTaints:      {Private, CauseVolatile, "is VOLATILE", false, true},
	vWrites:      {Private, CauseVolatile, "is VOLATILE", true, false},
	vAnything:    {Private, CauseVolatile, "is VOLATILE", true, true},
	vHiddenReads: {Private, CauseVolatile, "reads tables that the text does not name", true, true},
}

// The lists below sort every built-in function that is STABLE or VOLATILE, each
// once. What is in none of them is holdable if IMMUTABLE, and else may do
// anything. A name stands for all its overloads in all versions.

// holdableFunctions are STABLE because they read settings of the session
// (TimeZone, DateStyle, IntervalStyle, lc_*, xmloption,
// default_text_search_config, …), or objects that only DDL changes and DDL is
// a write (text search configurations, enum types, conversions).
const holdableFunctions = "" +
	"anytextcat textanycat concat concat_ws format quote_literal quote_nullable length " +
	"array_to_string array_to_json row_to_json to_json to_jsonb " +
	"json_agg jsonb_agg json_object_agg jsonb_object_agg " +
	"json_agg_strict json_object_agg_strict json_object_agg_unique json_object_agg_unique_strict " +
	"jsonb_agg_strict jsonb_object_agg_strict jsonb_object_agg_unique jsonb_object_agg_unique_strict " +
	"json_build_array json_build_object jsonb_build_array jsonb_build_object " +
	"json_populate_record json_populate_recordset " +
	"jsonb_populate_record jsonb_populate_record_valid jsonb_populate_recordset " +
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
	"timestamptz_pl_interval timestamptz_mi_interval interval_pl_timestamptz date_add date_subtract "

// timeFunctions move with the clock. age has overloads that take the current
// date or transaction; a time without date becomes a timetz by today's offset;
// the lists of time zones show today's offsets.
const timeFunctions = "" +
	"now transaction_timestamp statement_timestamp age mxid_age " +
	"timetz timetz_in date_in time_in timestamp_in timestamptz_in " +
	"pg_timezone_names pg_timezone_abbrevs pg_timezone_abbrevs_abbrevs pg_timezone_abbrevs_zone "

// userFunctions depend on who asks and in which database.
const userFunctions = "" +
	"current_user session_user system_user getpgusername current_database current_schema current_schemas "

// catalogFunctions look things up in the catalog or on the server: names,
// definitions, privileges, files. Whoever asks at the same moment with the same
// user and settings is told the same. They run no code but what PostgreSQL
// brings, and what only a superuser can add to it (parsers of text search, output
// functions). Some are called IMMUTABLE all the same.
const catalogFunctions = "" +
	"version getdatabaseencoding pg_client_encoding pg_char_to_encoding pg_encoding_to_char pg_config " +
	"pg_numa_available pg_postmaster_start_time pg_get_keywords " +
	"pg_typeof pg_basetype pg_collation_for format_type oidvectortypes regclass get_current_ts_config " +
	"to_regclass to_regcollation to_regnamespace to_regoper to_regoperator to_regproc to_regprocedure to_regrole " +
	"to_regtype to_regtypemod " +
	"aclitemin regclassin regcollationin regconfigin regdictionaryin regnamespacein regoperatorin regoperin " +
	"regprocedurein regprocin regrolein regtypein " +
	"aclitemout regclassout regcollationout regconfigout regdictionaryout regnamespaceout regoperatorout regoperout " +
	"regprocedureout regprocout regroleout regtypeout " +
	"obj_description col_description shobj_description pg_describe_object pg_identify_object " +
	"pg_identify_object_as_address pg_get_object_address " +
	"has_any_column_privilege has_column_privilege has_database_privilege has_foreign_data_wrapper_privilege " +
	"has_function_privilege has_language_privilege has_largeobject_privilege has_parameter_privilege " +
	"has_schema_privilege has_sequence_privilege has_server_privilege has_table_privilege has_tablespace_privilege " +
	"has_type_privilege pg_has_role row_security_active aclexplode " +
	"pg_collation_is_visible pg_conversion_is_visible pg_function_is_visible pg_opclass_is_visible " +
	"pg_operator_is_visible pg_opfamily_is_visible pg_statistics_obj_is_visible pg_table_is_visible " +
	"pg_ts_config_is_visible pg_ts_dict_is_visible pg_ts_parser_is_visible pg_ts_template_is_visible " +
	"pg_type_is_visible " +
	"pg_get_acl pg_get_catalog_foreign_keys pg_get_constraintdef pg_get_expr pg_get_function_arg_default " +
	"pg_get_function_arguments pg_get_function_identity_arguments pg_get_function_result pg_get_function_sqlbody " +
	"pg_get_functiondef pg_get_indexdef pg_get_partition_constraintdef pg_get_partkeydef pg_get_publication_tables " +
	"pg_get_replica_identity_index pg_get_ruledef pg_get_serial_sequence pg_get_statisticsobjdef " +
	"pg_get_statisticsobjdef_columns pg_get_statisticsobjdef_expressions pg_get_triggerdef pg_get_userbyid " +
	"pg_get_viewdef " +
	"pg_column_is_updatable pg_index_column_has_property pg_index_has_property pg_indexam_has_property " +
	"pg_indexam_progress_phasename pg_mcv_list_items pg_options_to_table pg_partition_root pg_relation_is_publishable " +
	"pg_relation_is_updatable pg_replication_origin_oid pg_sequence_parameters ts_debug ts_parse ts_token_type " +
	"pg_available_extension_versions pg_available_extensions pg_extension_update_paths pg_filenode_relation " +
	"pg_relation_filenode pg_relation_filepath pg_split_walfile_name pg_tablespace_databases pg_tablespace_location " +
	"pg_walfile_name pg_walfile_name_offset "

// storedFunctions depend on how a row is stored; VACUUM FULL may change it.
const storedFunctions = "pg_column_size pg_column_compression pg_column_toast_chunk_id "

// supportFunctions are for the server's own use: what a type or an aggregate
// is made of, and the planner's estimators.
const supportFunctions = "" +
	"anyarray_out anyarray_send anycompatiblearray_out anycompatiblearray_send anycompatiblemultirange_out " +
	"anycompatiblerange_out anyenum_out anymultirange_out anyrange_out array_out array_send bpcharrecv bpcharsend " +
	"brin_bloom_summary_recv brin_bloom_summary_send brin_minmax_multi_summary_recv brin_minmax_multi_summary_send " +
	"cash_in cash_out cstring_recv cstring_send date_out enum_in enum_out enum_recv enum_send interval_in " +
	"interval_out multirange_out multirange_send namerecv namesend pg_dependencies_recv pg_dependencies_send " +
	"pg_mcv_list_recv pg_mcv_list_send pg_ndistinct_recv pg_ndistinct_send pg_node_tree_recv pg_node_tree_send " +
	"range_out range_send record_out record_send textrecv textsend timestamp_out timestamptz_out varcharrecv " +
	"varcharsend xml_in xml_recv xml_send " +
	"json_agg_strict_transfn json_agg_transfn json_object_agg_strict_transfn json_object_agg_transfn " +
	"json_object_agg_unique_strict_transfn json_object_agg_unique_transfn jsonb_agg_finalfn jsonb_agg_strict_transfn " +
	"jsonb_agg_transfn jsonb_object_agg_finalfn jsonb_object_agg_strict_transfn jsonb_object_agg_transfn " +
	"jsonb_object_agg_unique_strict_transfn jsonb_object_agg_unique_transfn " +
	"areajoinsel areasel array_typanalyze arraycontjoinsel arraycontsel contjoinsel contsel eqjoinsel eqsel " +
	"iclikejoinsel iclikesel icnlikejoinsel icnlikesel icregexeqjoinsel icregexeqsel icregexnejoinsel icregexnesel " +
	"likejoinsel likesel matchingjoinsel matchingsel multirange_typanalyze multirangesel neqjoinsel neqsel " +
	"networkjoinsel networksel nlikejoinsel nlikesel positionjoinsel positionsel prefixjoinsel prefixsel " +
	"range_typanalyze rangesel regexeqjoinsel regexeqsel regexnejoinsel regexnesel scalargejoinsel scalargesel " +
	"scalargtjoinsel scalargtsel scalarlejoinsel scalarlesel scalarltjoinsel scalarltsel ts_typanalyze tsmatchjoinsel " +
	"tsmatchsel "

// sessionFunctions answer for the session or the transaction that asks, or
// from what each server process keeps for itself.
const sessionFunctions = "" +
	"current_setting currval lastval current_query pg_backend_pid pg_my_temp_schema pg_is_other_temp_schema " +
	"txid_current txid_current_if_assigned txid_current_snapshot " +
	"pg_current_xact_id pg_current_xact_id_if_assigned pg_current_snapshot " +
	"inet_client_addr inet_client_port inet_server_addr inet_server_port " +
	"pg_cursor pg_prepared_statement pg_listening_channels pg_trigger_depth pg_conf_load_time " +
	"pg_show_all_settings pg_settings_get_flags pg_stat_get_snapshot_timestamp " +
	"pg_event_trigger_ddl_commands pg_event_trigger_dropped_objects " +
	"pg_event_trigger_table_rewrite_oid pg_event_trigger_table_rewrite_reason "

// stateFunctions read what the server counts and who is connected to it.
const stateFunctions = "" +
	"pg_stat_get_activity pg_stat_get_analyze_count pg_stat_get_archiver pg_stat_get_autoanalyze_count " +
	"pg_stat_get_autovacuum_count pg_stat_get_backend_activity pg_stat_get_backend_activity_start " +
	"pg_stat_get_backend_client_addr pg_stat_get_backend_client_port pg_stat_get_backend_dbid " +
	"pg_stat_get_backend_idset pg_stat_get_backend_pid pg_stat_get_backend_start pg_stat_get_backend_subxact " +
	"pg_stat_get_backend_userid pg_stat_get_backend_wait_event pg_stat_get_backend_wait_event_type " +
	"pg_stat_get_backend_xact_start pg_stat_get_bgwriter_buf_written_checkpoints " +
	"pg_stat_get_bgwriter_buf_written_clean pg_stat_get_bgwriter_maxwritten_clean " +
	"pg_stat_get_bgwriter_requested_checkpoints pg_stat_get_bgwriter_stat_reset_time " +
	"pg_stat_get_bgwriter_timed_checkpoints pg_stat_get_blocks_fetched pg_stat_get_blocks_hit pg_stat_get_buf_alloc " +
	"pg_stat_get_buf_fsync_backend pg_stat_get_buf_written_backend pg_stat_get_checkpoint_sync_time " +
	"pg_stat_get_checkpoint_write_time pg_stat_get_checkpointer_buffers_written " +
	"pg_stat_get_checkpointer_num_performed pg_stat_get_checkpointer_num_requested pg_stat_get_checkpointer_num_timed " +
	"pg_stat_get_checkpointer_restartpoints_performed pg_stat_get_checkpointer_restartpoints_requested " +
	"pg_stat_get_checkpointer_restartpoints_timed pg_stat_get_checkpointer_slru_written " +
	"pg_stat_get_checkpointer_stat_reset_time pg_stat_get_checkpointer_sync_time pg_stat_get_checkpointer_write_time " +
	"pg_stat_get_db_active_time pg_stat_get_db_blk_read_time pg_stat_get_db_blk_write_time " +
	"pg_stat_get_db_blocks_fetched pg_stat_get_db_blocks_hit pg_stat_get_db_checksum_failures " +
	"pg_stat_get_db_checksum_last_failure pg_stat_get_db_conflict_all pg_stat_get_db_conflict_bufferpin " +
	"pg_stat_get_db_conflict_lock pg_stat_get_db_conflict_logicalslot pg_stat_get_db_conflict_snapshot " +
	"pg_stat_get_db_conflict_startup_deadlock pg_stat_get_db_conflict_tablespace pg_stat_get_db_deadlocks " +
	"pg_stat_get_db_idle_in_transaction_time pg_stat_get_db_numbackends pg_stat_get_db_parallel_workers_launched " +
	"pg_stat_get_db_parallel_workers_to_launch pg_stat_get_db_session_time pg_stat_get_db_sessions " +
	"pg_stat_get_db_sessions_abandoned pg_stat_get_db_sessions_fatal pg_stat_get_db_sessions_killed " +
	"pg_stat_get_db_stat_reset_time pg_stat_get_db_temp_bytes pg_stat_get_db_temp_files pg_stat_get_db_tuples_deleted " +
	"pg_stat_get_db_tuples_fetched pg_stat_get_db_tuples_inserted pg_stat_get_db_tuples_returned " +
	"pg_stat_get_db_tuples_updated pg_stat_get_db_xact_commit pg_stat_get_db_xact_rollback pg_stat_get_dead_tuples " +
	"pg_stat_get_function_calls pg_stat_get_function_self_time pg_stat_get_function_total_time " +
	"pg_stat_get_ins_since_vacuum pg_stat_get_last_analyze_time pg_stat_get_last_autoanalyze_time " +
	"pg_stat_get_last_autovacuum_time pg_stat_get_last_vacuum_time pg_stat_get_lastscan pg_stat_get_live_tuples " +
	"pg_stat_get_mod_since_analyze pg_stat_get_numscans pg_stat_get_progress_info pg_stat_get_replication_slot " +
	"pg_stat_get_slru pg_stat_get_subscription pg_stat_get_subscription_stats pg_stat_get_total_analyze_time " +
	"pg_stat_get_total_autoanalyze_time pg_stat_get_total_autovacuum_time pg_stat_get_total_vacuum_time " +
	"pg_stat_get_tuples_deleted pg_stat_get_tuples_fetched pg_stat_get_tuples_hot_updated pg_stat_get_tuples_inserted " +
	"pg_stat_get_tuples_newpage_updated pg_stat_get_tuples_returned pg_stat_get_tuples_updated " +
	"pg_stat_get_vacuum_count pg_stat_get_wal pg_stat_get_wal_receiver pg_stat_get_wal_senders " +
	"pg_get_replication_slots "

// codeFunctions run code that an argument names: the input function of a type,
// the checks of a domain.
const codeFunctions = "" +
	"array_in array_recv domain_in domain_recv record_in record_recv range_in range_recv multirange_in multirange_recv " +
	"anyarray_recv anycompatiblearray_recv anyrange_in anymultirange_in anycompatiblerange_in anycompatiblemultirange_in " +
	"pg_input_is_valid pg_input_error_info "

// harmlessFunctions are VOLATILE, but leave no trace in what other sessions
// read nor in their own session. The effects that some have all the same (a
// sequence moves, a backend stops, a message goes out) are seen by no read
// that may be shared.
const harmlessFunctions = "" +
	"random random_normal array_sample array_shuffle gen_random_uuid uuidv4 uuidv7 clock_timestamp timeofday " +
	"pg_sleep pg_sleep_for pg_sleep_until nextval pg_notify " +
	"pg_advisory_xact_lock pg_advisory_xact_lock_shared pg_try_advisory_xact_lock pg_try_advisory_xact_lock_shared " +
	"pg_cancel_backend pg_terminate_backend pg_blocking_pids pg_safe_snapshot_blocking_pids " +
	"pg_isolation_test_session_is_blocked pg_log_backend_memory_contexts " +
	"pg_is_in_recovery pg_is_wal_replay_paused pg_get_wal_replay_pause_state pg_get_wal_resource_managers " +
	"pg_current_wal_flush_lsn pg_current_wal_insert_lsn pg_current_wal_lsn pg_last_wal_receive_lsn " +
	"pg_last_wal_replay_lsn " +
	"pg_last_xact_replay_timestamp pg_last_committed_xact pg_xact_status txid_status " +
	"pg_xact_commit_timestamp pg_xact_commit_timestamp_origin " +
	"pg_relation_size pg_table_size pg_total_relation_size pg_indexes_size pg_database_size pg_tablespace_size " +
	"pg_stat_file pg_read_file pg_read_binary_file pg_read_file_old pg_current_logfile " +
	"pg_ls_archive_statusdir pg_ls_dir pg_ls_logdir pg_ls_logicalmapdir pg_ls_logicalsnapdir pg_ls_replslotdir " +
	"pg_ls_summariesdir pg_ls_tmpdir pg_ls_waldir pg_lock_status pg_prepared_xact pg_notification_queue_usage " +
	"pg_jit_available " +
	"pg_control_checkpoint pg_control_init pg_control_recovery pg_control_system " +
	"pg_get_multixact_members pg_get_shmem_allocations pg_get_shmem_allocations_numa pg_get_backend_memory_contexts " +
	"pg_get_aios pg_get_loaded_modules pg_get_sequence_data pg_get_wait_events " +
	"pg_get_wal_summarizer_state pg_available_wal_summaries pg_wal_summary_contents " +
	"pg_partition_tree pg_partition_ancestors pg_sequence_last_value " +
	"pg_hba_file_rules pg_ident_file_mappings pg_show_all_file_settings pg_show_replication_origin_status " +
	"pg_collation_actual_version pg_database_collation_actual_version amvalidate currtid2 bernoulli system " +
	"pg_logical_slot_peek_changes pg_logical_slot_peek_binary_changes pg_export_snapshot " +
	"pg_stat_get_io pg_stat_get_backend_io pg_stat_get_backend_wal " +
	"pg_stat_get_recovery_prefetch pg_stat_have_stats pg_stat_get_xact_blocks_fetched pg_stat_get_xact_blocks_hit " +
	"pg_stat_get_xact_function_calls pg_stat_get_xact_function_self_time pg_stat_get_xact_function_total_time " +
	"pg_stat_get_xact_numscans pg_stat_get_xact_tuples_deleted pg_stat_get_xact_tuples_fetched " +
	"pg_stat_get_xact_tuples_hot_updated pg_stat_get_xact_tuples_inserted pg_stat_get_xact_tuples_returned " +
	"pg_stat_get_xact_tuples_updated pg_stat_get_xact_tuples_newpage_updated "

// lockingFunctions are VOLATILE, and what they leave behind can be asked for.
const lockingFunctions = "" +
	"pg_advisory_lock pg_advisory_lock_shared pg_try_advisory_lock pg_try_advisory_lock_shared " +
	"pg_advisory_unlock pg_advisory_unlock_shared pg_advisory_unlock_all "

// taintingFunctions are VOLATILE and change their session and nothing else.
const taintingFunctions = "set_config setseed "

// writingFunctions are VOLATILE and write, but leave their session as it was.
const writingFunctions = "" +
	"setval lo_close lo_creat lo_create lo_export lo_from_bytea lo_get lo_import lo_lseek lo_lseek64 lo_open lo_put " +
	"lo_tell lo_tell64 lo_truncate lo_truncate64 lo_unlink loread lowrite " +
	"pg_clear_attribute_stats pg_clear_relation_stats pg_restore_attribute_stats pg_restore_relation_stats "

// hiddenReads run SQL that they are given, or read tables, and so views and
// the functions in them, that the text does not name.
const hiddenReads = "" +
	"query_to_xml query_to_xml_and_xmlschema query_to_xmlschema cursor_to_xml cursor_to_xmlschema ts_stat ts_rewrite " +
	"table_to_xml table_to_xmlschema table_to_xml_and_xmlschema schema_to_xml schema_to_xmlschema schema_to_xml_and_xmlschema " +
	"database_to_xml database_to_xmlschema database_to_xml_and_xmlschema "

// anythingFunctions are the rest: an administrator's, triggers, handlers and
// validators. They are taken to do anything.
const anythingFunctions = "" +
	"RI_FKey_cascade_del RI_FKey_cascade_upd RI_FKey_check_ins RI_FKey_check_upd RI_FKey_noaction_del " +
	"RI_FKey_noaction_upd RI_FKey_restrict_del RI_FKey_restrict_upd RI_FKey_setdefault_del RI_FKey_setdefault_upd " +
	"RI_FKey_setnull_del RI_FKey_setnull_upd binary_upgrade_add_sub_rel_state binary_upgrade_create_empty_extension " +
	"binary_upgrade_logical_slot_has_caught_up binary_upgrade_replorigin_advance binary_upgrade_set_missing_value " +
	"binary_upgrade_set_next_array_pg_type_oid binary_upgrade_set_next_attribute_versions " +
	"binary_upgrade_set_next_heap_pg_class_oid binary_upgrade_set_next_heap_relfilenode " +
	"binary_upgrade_set_next_index_pg_class_oid binary_upgrade_set_next_index_relfilenode " +
	"binary_upgrade_set_next_multirange_array_pg_type_oid binary_upgrade_set_next_multirange_pg_type_oid " +
	"binary_upgrade_set_next_pg_authid_oid binary_upgrade_set_next_pg_enum_oid " +
	"binary_upgrade_set_next_pg_tablespace_oid binary_upgrade_set_next_pg_type_oid " +
	"binary_upgrade_set_next_toast_pg_class_oid binary_upgrade_set_next_toast_relfilenode " +
	"binary_upgrade_set_record_init_privs brin_desummarize_range brin_summarize_new_values brin_summarize_range " +
	"brinhandler bthandler dsnowball_init dsnowball_lexize fmgr_c_validator fmgr_internal_validator fmgr_sql_validator " +
	"gin_clean_pending_list ginhandler gisthandler hashhandler " +
	"heap_tableam_handler pg_backup_start pg_backup_stop pg_copy_logical_replication_slot " +
	"pg_copy_physical_replication_slot pg_create_logical_replication_slot pg_create_physical_replication_slot " +
	"pg_create_restore_point pg_drop_replication_slot pg_extension_config_dump pg_import_system_collations " +
	"pg_log_standby_snapshot pg_logical_emit_message pg_logical_slot_get_binary_changes pg_logical_slot_get_changes " +
	"pg_nextoid pg_promote pg_reload_conf pg_replication_origin_advance pg_replication_origin_create " +
	"pg_replication_origin_drop pg_replication_origin_progress pg_replication_origin_session_is_setup " +
	"pg_replication_origin_session_progress pg_replication_origin_session_reset pg_replication_origin_session_setup " +
	"pg_replication_origin_xact_reset pg_replication_origin_xact_setup pg_replication_slot_advance pg_rotate_logfile " +
	"pg_rotate_logfile_old pg_stat_clear_snapshot pg_stat_force_next_flush pg_stat_reset pg_stat_reset_backend_stats " +
	"pg_stat_reset_replication_slot pg_stat_reset_shared pg_stat_reset_single_function_counters " +
	"pg_stat_reset_single_table_counters pg_stat_reset_slru pg_stat_reset_subscription_stats " +
	"pg_stop_making_pinned_objects pg_switch_wal pg_sync_replication_slots pg_wal_replay_pause pg_wal_replay_resume " +
	"plpgsql_call_handler plpgsql_inline_handler plpgsql_validator spghandler suppress_redundant_updates_trigger " +
	"tsvector_update_trigger tsvector_update_trigger_column unique_key_recheck "

// jsonFunctions are built by the grammar of PostgreSQL 16 and 17 and are in no
// server's pg_proc, but for json_object. What they answer depends on session
// settings alone.
const jsonFunctions = "" +
	"json json_array json_arrayagg json_exists json_object json_objectagg json_query json_scalar json_serialize " +
	"json_table json_value "

// mergeFunctions are known to the grammar alone, and only in a MERGE.
const mergeFunctions = "merge_action "

// lists are the lists of functions with what their names mean.
var lists = []struct {
	names string
	v     verdict
}{
	{holdableFunctions, vHoldable},
	{timeFunctions, vTime},
	{userFunctions, vUser},
	{catalogFunctions, vCatalog},
	{storedFunctions, vStable},
	{supportFunctions, vStable},
	{sessionFunctions, vSession},
	{stateFunctions, vState},
	{codeFunctions, vCode},
	{harmlessFunctions, vVolatile},
	{mergeFunctions, vVolatile},
	{lockingFunctions, vLocks},
	{taintingFunctions, vTaints},
	{writingFunctions, vWrites},
	{hiddenReads, vHiddenReads},
	{anythingFunctions, vAnything},
}

// grammarTypes are type names that only the grammar knows; quoted, they are
// names like any other.
const grammarTypes = "" +
	"bigint boolean char character dec decimal float int integer interval national nchar numeric real smallint time timestamp varchar bit "

// catalogTypes are built-in types whose input looks a name up in the catalog.
const catalogTypes = "" +
	"regclass regcollation regnamespace regoper regoperator regproc regprocedure regrole regtype aclitem " +
	"_regclass _regcollation _regnamespace _regoper _regoperator _regproc _regprocedure _regrole _regtype _aclitem "

// timeTypes take today's offset when they are read from a time without zone.
const timeTypes = "timetz _timetz "

// systemColumns change without a write: a row lock sets xmax, VACUUM FULL and
// CLUSTER move rows.
const systemColumns = "ctid xmax cmin cmax "
