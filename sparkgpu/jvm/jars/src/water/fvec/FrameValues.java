package water.fvec;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import water.DKV;

/**
 * The values of a frame of few rows, for the process that asks through py4j. H2O would hand them over as a
 * file, and what writes Parquet takes longer to load than such a frame takes in all.
 */
public final class FrameValues {
  private FrameValues() {}

  /** The columns of the frame called {@code name}, one after the other, as little-endian doubles. */
  public static byte[] of(String name) {
    Frame frame = DKV.getGet(name);
    int rows = Math.toIntExact(frame.numRows());
    int bytes = Math.multiplyExact(Math.multiplyExact(rows, frame.numCols()), Double.BYTES);
    ByteBuffer found = ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
    for (Vec column : frame.vecs()) {
      Vec.Reader reader = column.new Reader();
      for (int row = 0; row < rows; row++) {
        found.putDouble(reader.at(row));
      }
    }
    return found.array();
  }
}
