package water.jdbc;

import java.sql.Connection;
import water.Job;
import water.fvec.Frame;

/**
 * Stands in for H2O's class of the same name, through which all of its JDBC goes: the import of SQL tables, and
 * that and the export of Hive tables. Each published hole that runs code in 3.46.0.6 is in that class, in what
 * a connection's URL may hold. No table of ours comes by JDBC, so here every call is refused, also of those
 * with the login.
 */
public class SQLManager {
  /** Called by POST /99/ImportSQLTable. */
  public static Job<Frame> importSqlTable(
      String connectionUrl, String table, String selectQuery, String username, String password, String columns,
      Boolean useTempTable, String tempTableName, SqlFetchMode fetchMode, Integer numChunksHint) {
    throw refusal();
  }

  /** Called by POST /3/ImportHiveTable and /3/SaveToHiveTable. */
  public static Connection getConnectionSafe(String url, String username, String password) {
    throw refusal();
  }

  private static IllegalArgumentException refusal() {
    return new IllegalArgumentException("sparkgpu has shut H2O's import of SQL tables");
  }
}
