package water.fvec;

import java.io.EOFException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import water.Key;

/**
 * A column of an H2O frame whose values lie, one after the other, in a file of this machine. H2O keeps none of
 * them: each question for a chunk reads that part of the file, which the system holds in its cache.
 *
 * <p>The bytes are those of H2O's own chunk classes, little-endian; a missing value is NaN. For a cloud of one
 * node only. The names are those of 3.46.
 */
public final class FileColumn extends Vec {
  private final String file;
  private final long offset;
  private final boolean isDouble;

  FileColumn(Key<Vec> key, int rowLayout, String[] domain, String file, long offset, boolean isDouble) {
    super(key, rowLayout, domain);
    this.file = file;
    this.offset = offset;
    this.isDouble = isDouble;
  }

  @Override
  public Chunk chunkForChunkIdx(int index) {
    byte[] bytes = read(chunk2StartElem(index), chunkLen(index));
    Chunk chunk = isDouble ? new C8DChunk(bytes) : new C4FChunk(bytes);
    chunk._vec = this;
    chunk._start = chunk2StartElem(index);
    chunk._cidx = index;
    return chunk;
  }

  @Override
  boolean writable() {
    return false;
  }

  private byte[] read(long row, int rows) {
    int width = isDouble ? Double.BYTES : Float.BYTES;
    byte[] bytes = new byte[rows * width];
    ByteBuffer buffer = ByteBuffer.wrap(bytes);
    long begin = offset + row * width;
    try (FileChannel channel = FileChannel.open(Paths.get(file), StandardOpenOption.READ)) {
      while (buffer.hasRemaining()) {
        if (channel.read(buffer, begin + buffer.position()) < 0) {
          throw new EOFException(file + " ends within its columns");
        }
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return bytes;
  }
}
